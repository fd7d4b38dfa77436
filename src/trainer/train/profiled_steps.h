#pragma once

#include <optional>
#include <string>

#include "graphs/step_graph.h"
#include "runtime/profile_range.h"
#include "runtime/timeline.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {

// The steps of --profile-steps on one rank: the NVTX range `profile` on rank 0, and with --timeline
// their records; by default the third step, or the first of a shorter run.
class ProfiledSteps {
 public:
  // `timeline` may be null. The run's steps are [first, end). The arguments must outlive this.
  ProfiledSteps(RankContext& rank, const RunConfig& config, const graphs::StepGraph& graph,
                Timeline* timeline, std::int64_t first, std::int64_t end);

  // True if the range begins or ends before `step`: then call cross().
  [[nodiscard]] bool is_border(std::int64_t step) const {
    return step == (is_open_ ? end_ : begin_);
  }
  // Ends the range, if it is open, or else begins it. Every rank calls it while all devices are
  // idle. Returns what to log, on rank 0 only.
  std::string cross(bool last_is_slowest);
  [[nodiscard]] bool is_open() const { return is_open_; }
  // True if the step before `step` is recorded, so that it must be known whether it is the slowest.
  [[nodiscard]] bool follows_recorded(std::int64_t step) const {
    return timeline_ != nullptr && begin_ <= step && step <= end_;
  }
  // Call this at the start of each step.
  void begin_step(std::int64_t step, bool last_is_slowest) {
    if (recorder_) recorder_->begin_step(step, last_is_slowest);
  }

 private:
  RankContext& rank_;
  const graphs::StepGraph& graph_;
  Timeline* const timeline_;
  std::int64_t begin_, end_;
  bool is_open_ = false;
  std::optional<ProfileRange> range_;
  std::optional<StepRecorder> recorder_;
};

}  // namespace muo::trainer
