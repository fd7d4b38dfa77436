#include "trainer/train/profiled_steps.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kSettled = 2;  // steps after which a run's steps take equally long

}  // namespace

ProfiledSteps::ProfiledSteps(RankContext& rank, const RunConfig& config,
                             const graphs::StepGraph& graph, Timeline* timeline, std::int64_t first,
                             std::int64_t end)
    : rank_(rank),
      graph_(graph),
      timeline_(timeline),
      begin_(config.profile_begin),
      end_(config.profile_end) {
  if (timeline_ == nullptr || begin_ >= 0) return;
  begin_ = first + kSettled < end ? first + kSettled : first;
  end_ = begin_ + 1;
}

std::string ProfiledSteps::cross(bool last_is_slowest) {
  constexpr const char* kSite = "the profiled steps";
  const bool writes = recorder_.has_value();
  if (writes) timeline_->add(recorder_->take(last_is_slowest));
  recorder_.reset();
  rank_.barrier.arrive(
      [&] {
        if (writes) timeline_->write();
      },
      kSite);
  range_.reset();
  is_open_ = !is_open_;
  if (is_open_) {
    if (rank_.rank == 0) range_.emplace(ProfileKind::kPhase, "profile");
    if (timeline_ != nullptr)
      recorder_.emplace(rank_.rank, graph_.graphs(), rank_.compute.is_host() ? 0 : 1);
  }
  rank_.barrier.arrive({}, kSite);
  return writes && rank_.rank == 0 ? timeline_->note() : "";
}

}  // namespace muo::trainer
