#include "runtime/timeline.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/durable_files.h"
#include "base/threads.h"
#include "runtime/comm/process_group.h"

namespace muo {
namespace {

constexpr std::chrono::milliseconds kPowerPeriod{100};  // in which a driver renews its counter
constexpr std::size_t kBefore = std::numeric_limits<std::size_t>::max();

}  // namespace

StepRecorder::StepRecorder(int rank, std::span<Graph* const> graphs, int ahead)
    : ahead_(ahead), named_(this) {
  record_.rank = rank;
  for (Graph* graph : graphs) {
    GraphObserver& observer = observers_.emplace_back();
    if (!graph->observe(&observer)) {
      observers_.pop_back();
      continue;
    }
    observer.recorder = this;
    observer.graph = graph;
    observer.index = static_cast<std::uint32_t>(record_.graphs.size());
    record_.graphs.push_back(&graph->trace());
  }
}

StepRecorder::~StepRecorder() {
  for (const GraphObserver& observer : observers_)
    observer.graph->observe(nullptr);
}

void StepRecorder::GraphObserver::ran(const NodeRun& run) {
  const auto of_step = std::ranges::find_if(recorder->steps_, [&](const StepRecord& step) {
    const StepRecord::Launches& launches = step.launches[index];
    return launches.begin <= run.launch && run.launch < launches.end;
  });
  if (of_step != recorder->steps_.end()) of_step->runs.push_back({.graph = index, .run = run});
}

void StepRecorder::begins(const ProfileRange::Open& range) {
  open_.push_back(steps_.empty() ? kBefore : steps_.back().host.size());
  if (!steps_.empty())
    steps_.back().host.push_back(
        {.name = range.name,
         .number = range.kind == ProfileKind::kCollective ? std::nullopt : range.number,
         .begin = steady_seconds()});
}

void StepRecorder::ends() {
  if (open_.back() != kBefore) steps_.back().host[open_.back()].end = steady_seconds();
  open_.pop_back();
}

void StepRecorder::begin_step(std::int64_t step, bool last_is_slowest) {
  end_step(last_is_slowest);
  for (const GraphObserver& observer : observers_)
    observer.graph->show_observed(/*all=*/false);
  StepRecord next{.step = step, .runs = {}, .host = {}, .launches = {}};
  for (const GraphObserver& observer : observers_)
    next.launches.push_back({observer.graph->launches(), std::numeric_limits<std::int64_t>::max()});
  if (!steps_.empty()) {
    next.runs.reserve(steps_.front().runs.size());
    next.host.reserve(steps_.front().host.size());
  }
  steps_.push_back(std::move(next));
  if (record_.left_out_steps || steps_.size() > kMaxSteps)
    leave_out_steps(1 + static_cast<std::size_t>(ahead_));
}

void StepRecorder::end_step(bool is_slowest) {
  if (steps_.empty()) return;
  std::ranges::fill(open_, kBefore);
  for (const GraphObserver& observer : observers_)
    steps_.back().launches[observer.index].end = observer.graph->launches();
  if (is_slowest) slowest_ = steps_.back().step;
}

void StepRecorder::leave_out_steps(std::size_t newest) {
  record_.left_out_steps = true;
  std::size_t index = 0;
  const std::size_t newest_begin = steps_.size() - newest;
  std::erase_if(steps_, [&](const StepRecord& step) {
    const bool is_kept = index == 0 || index >= newest_begin ||
                         (slowest_ && *slowest_ - ahead_ <= step.step && step.step <= *slowest_);
    ++index;
    return !is_kept;
  });
}

RankRecord StepRecorder::take(bool last_is_slowest) {
  end_step(last_is_slowest);
  for (const GraphObserver& observer : observers_) {
    observer.graph->show_observed(/*all=*/true);
    record_.lost_runs = observer.graph->lost_runs();
  }
  if (record_.left_out_steps) leave_out_steps(0);
  for (StepRecord& step : steps_) {
    std::ranges::stable_sort(step.runs, {},
                             [](const StepRecord::Run& run) { return run.run.begin; });
    record_.steps.push_back(std::move(step));
  }
  steps_.clear();
  std::ranges::fill(open_, kBefore);
  return std::move(record_);
}

Timeline::Timeline(const std::filesystem::path& file, const GroupOptions& group)
    : file_(group.processes == nullptr ? file
                                       : std::filesystem::path(file).replace_filename(concat(
                                             file.stem().string(), ".", group.processes->process(),
                                             file.extension().string()))),
      unrecorded_(group.plugin != nullptr && group.plugin->record_nodes != nullptr
                      ? group.plugin->record_nodes()
                      : ""),
      meter_(group) {}

bool Timeline::last_is_slowest() {
  const double now = steady_seconds();
  meter_.sample();
  if (const std::optional<PowerUse> use = meter_.recent(kPowerPeriod))
    facts_.power.push_back({.time = now, .watts = use->watts(), .clock_mhz = use->clock_mhz});
  const std::optional<double> before = std::exchange(last_end_, now);
  if (!before) return false;
  const bool first = !std::exchange(has_first_, true);
  if (first || now - *before <= longest_) return false;
  longest_ = now - *before;
  return true;
}

void Timeline::add(RankRecord record) {
  const std::lock_guard lock(mutex_);
  ranks_.push_back(std::move(record));
}

void Timeline::write() {
  std::ranges::sort(ranks_, {}, &RankRecord::rank);
  try {
    replace_file(file_, timeline_json(ranks_, facts_));
  } catch (const WriteError& error) {  // no reason to end a run
    failure_ = error.what();
  }
}

std::string Timeline::note() const {
  if (!is_written()) return "warning: --timeline: none of the steps to record was run";
  if (!failure_.empty()) return concat("warning: --timeline: ", failure_);
  std::string note = concat("timeline: ", file_.string());
  if (!unrecorded_.empty()) return concat(note, " (of the host only: ", unrecorded_, ")");
  if (ranks_.front().graphs.empty()) return note + " (of the host only: no replays)";
  std::int64_t lost = 0;
  for (const RankRecord& rank : ranks_)
    lost = std::max(lost, rank.lost_runs);
  return lost > 0 ? concat(note, " (", lost, " kernels are missing)") : note;
}

}  // namespace muo
