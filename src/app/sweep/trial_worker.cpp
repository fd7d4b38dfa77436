#include "app/sweep/trial_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "app/train/captured_rank.h"
#include "base/threads.h"
#include "runtime/rank_progress.h"

namespace muo {

SweepRun::SweepRun(const SweepPlan& plan, Scheduler& scheduler, SweepDirectory& directory,
                   TrialRun::Shared trials)
    : plan_(plan),
      scheduler_(scheduler),
      directory_(directory),
      trials_(std::move(trials)),
      workers_(static_cast<std::size_t>(plan.workers)) {}

void SweepRun::work(int index) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  while (const auto group = scheduler_.next_group())
    scheduler_.leave_group(*group, serve(worker, index, *group));
}

// Captures the group's step, then trains its trials, one after another. Whether it could capture.
bool SweepRun::serve(Worker& worker, int index, std::size_t group_index) {
  const CaptureGroup& group = plan_.groups[group_index];
  GroupOptions devices = group.config.group;
  devices.first_device = index / plan_.trials_per_device * devices.world / devices.ranks_per_device;
  devices.watch.stuck_after = stuck_after(group.config);
  devices.watch.before_exit = [&worker] {
    if (worker.current) worker.current->flush();
  };
  std::atomic<bool> has_captured = false;
  try {
    DeviceGroup ranks(devices);
    ranks.run([&](RankContext& rank) {
      CapturedRank captured(rank, group.config, group.params, group.plan, trials_.corpus,
                            group.staging_bytes > 0);
      captured.capture(trials_.corpus);
      if (rank.rank == 0) {
        ++captures_;
        has_captured = true;
        scheduler_.captured(group_index);
      }
      for (;;) {
        rank.barrier.arrive([&] { take_next(worker, group_index); }, "the next trial");
        if (!worker.current) return;
        train_run(captured, worker.current->run());
      }
    });
  } catch (const std::exception& error) {
    fail_current(worker, group_index, error.what());
  }
  await_recorded(worker);
  return has_captured;
}

// Where the ranks meet: the last to come calls it.
void SweepRun::take_next(Worker& worker, std::size_t group) {
  if (worker.current) end_current(worker);
  if (trials_.stop != 0) scheduler_.stop();
  const auto alive = [&] {
    RankProgress::alive();
    free_recorded(worker);
  };
  alive();
  while (const auto stretch = scheduler_.next_trial(group, alive)) {
    try {
      auto trial = std::make_unique<TrialRun>(trials_, plan_.trials[stretch->trial],
                                              plan_.groups[group], *stretch);
      const std::lock_guard lock(mutex_);
      worker.current = std::move(trial);
      if (std::ranges::find(ending_, stretch->trial) != ending_.end()) worker.current->end_early();
      return;
    } catch (const std::exception& error) {
      record(*stretch, {.state = TrialState::kFailed, .message = error.what()});
    }
  }
  await_recorded(worker);
}

void SweepRun::end_current(Worker& worker) {
  worker.current->end();
  const std::lock_guard lock(mutex_);
  unrecorded_.push_back(worker.current.get());
  worker.ended.push_back(std::move(worker.current));
}

// The devices have failed, with the current trial or before there was one.
void SweepRun::fail_current(Worker& worker, std::size_t group, const std::string& why) {
  const TrialResult failed{.state = TrialState::kFailed, .message = why};
  if (worker.current) {
    record(worker.current->stretch(), failed);
    const std::lock_guard lock(mutex_);
    worker.current.reset();
    return;
  }
  while (const auto stretch = scheduler_.take_waiting(group))
    record(*stretch, failed);
}

void SweepRun::free_recorded(Worker& worker) {
  std::vector<std::unique_ptr<TrialRun>> recorded;
  const std::lock_guard lock(mutex_);
  std::erase_if(worker.ended, [&](std::unique_ptr<TrialRun>& trial) {
    if (std::ranges::find(unrecorded_, trial.get()) != unrecorded_.end()) return false;
    recorded.push_back(std::move(trial));
    return true;
  });
}

void SweepRun::await_recorded(Worker& worker) {
  for (;;) {
    free_recorded(worker);
    if (worker.ended.empty()) return;
    RankProgress::alive();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void SweepRun::record_results() {
  std::vector<TrialRun*> trials;
  {
    const std::lock_guard lock(mutex_);
    trials = unrecorded_;
  }
  for (TrialRun* trial : trials) {
    if (trial->is_saving()) continue;
    if (trial->was_stopped())
      scheduler_.give_back(trial->stretch());
    else
      record(trial->stretch(), trial->result());
    const std::lock_guard lock(mutex_);
    std::erase(unrecorded_, trial);
  }
}

void SweepRun::record(const Scheduler::Stretch& stretch, const TrialResult& result) {
  try {
    directory_.add_result(stretch.trial, stretch.rung, result);
  } catch (const Error& error) {
    fail(error.what());
  }
  scheduler_.finish(stretch, result);
  if (trials_.ended) trials_.ended(stretch.trial, result);
}

void SweepRun::end_early(std::size_t trial) {
  const std::lock_guard lock(mutex_);
  ending_.push_back(trial);  // it may be about to begin
  for (const Worker& worker : workers_)
    if (worker.current && worker.current->stretch().trial == trial) worker.current->end_early();
}

void SweepRun::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
  }
  stop();
}

void SweepRun::stop() {
  trials_.stop = 1;
  scheduler_.stop();
}

std::string SweepRun::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<SweepRun::Running> SweepRun::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<Running> out;
  for (const Worker& worker : workers_)
    if (worker.current)
      out.push_back({.trial = worker.current->stretch().trial,
                     .first = worker.current->first_step(),
                     .done = worker.current->run().steps_done,
                     .until = worker.current->stretch().until});
  return out;
}

}  // namespace muo
