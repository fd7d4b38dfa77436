#include "kit/sweep/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/shell_word.h"
#include "base/threads.h"

namespace muo::kit {

SweepRun::SweepRun(const SweepPlan& plan, Scheduler& scheduler, SweepDirectory& directory,
                   TrialRun::Shared trials)
    : plan_(plan),
      scheduler_(scheduler),
      directory_(directory),
      trials_(std::move(trials)),
      workers_(static_cast<std::size_t>(plan.workers)) {}

void SweepRun::work(int index) {
  Worker& worker = at(index);
  for (;;) {
    if (trials_.stop != 0) scheduler_.stop();
    free_recorded(worker);
    const auto segment = scheduler_.next_trial(index, [&] { free_recorded(worker); });
    if (!segment) break;
    train(index, *segment);
  }
  await_recorded(worker);
  worker.sessions.clear();
}

void SweepRun::train(int index, const Scheduler::Segment& segment) {
  Worker& worker = at(index);
  const Trial& trial = plan_.trials[segment.trial];
  StepSession* session = nullptr;
  try {
    session = &session_of(index, trial.group);
  } catch (const std::exception& error) {
    record_failure(segment, std::current_exception());
    if (failure().empty()) fail_group(trial.group, error.what());
    return;
  }
  try {
    auto run = std::make_unique<TrialRun>(trials_, trial, plan_.groups[trial.group], segment);
    const std::lock_guard lock(mutex_);
    worker.current = std::move(run);
    if (std::ranges::find(ending_, segment.trial) != ending_.end()) worker.current->end_early();
  } catch (...) {
    return record_failure(segment, std::current_exception());
  }
  try {
    session->train(worker.current->run());
    end_current(worker);
  } catch (...) {
    const std::exception_ptr cause = std::current_exception();
    drop(index, worker.sessions.end() - 1);
    {
      const std::lock_guard lock(mutex_);
      worker.current.reset();
    }
    record_failure(segment, cause);
  }
}

// Returns the worker's session of the group, and captures the group if there is none. Throws as
// capturing does.
StepSession& SweepRun::session_of(int index, std::size_t group_index) {
  Worker& worker = at(index);
  std::vector<Session>& sessions = worker.sessions;
  if (const auto kept = std::ranges::find(sessions, group_index, &Session::group);
      kept != sessions.end()) {
    std::rotate(kept, kept + 1, sessions.end());
    return *sessions.back().step;
  }
  const CaptureGroup& group = plan_.groups[group_index];
  make_room(index, group);
  GroupOptions devices = group.run.config.group;
  devices.first_device = index / plan_.trials_per_device * devices.world / devices.ranks_per_device;
  devices.watch.before_exit = [&worker] {
    if (worker.current) worker.current->flush();
  };
  try {
    sessions.push_back(
        {group_index, std::make_unique<StepSession>(group.run, devices, trials_.corpus)});
  } catch (...) {
    scheduler_.drop_group(index, group_index);
    throw;
  }
  ++captures_;
  return *sessions.back().step;
}

// Drops the least recently used sessions until the group fits into memory beside the others.
void SweepRun::make_room(int index, const CaptureGroup& group) {
  std::vector<Session>& sessions = at(index).sessions;
  const auto fits = [&] {
    WorkerMemory sum = group.memory_kept;
    for (const Session& session : sessions) {
      sum.device += plan_.groups[session.group].memory_kept.device;
      sum.host += plan_.groups[session.group].memory_kept.host;
    }
    return sum.device <= plan_.worker_memory.device && sum.host <= plan_.worker_memory.host;
  };
  while (!sessions.empty() && !fits()) {
    await_recorded(at(index));
    drop(index, sessions.begin());
  }
}

void SweepRun::drop(int index, std::vector<Session>::iterator session) {
  scheduler_.drop_group(index, session->group);
  at(index).sessions.erase(session);
}

// Fails all waiting trials of the group, because its step cannot be captured.
void SweepRun::fail_group(std::size_t group, const std::string& why) {
  while (const auto segment = scheduler_.take_waiting(group))
    record(*segment, {.state = TrialState::kFailed, .message = why});
}

void SweepRun::end_current(Worker& worker) {
  worker.current->end();
  const std::lock_guard lock(mutex_);
  unrecorded_.push_back(worker.current.get());
  worker.ended.push_back(std::move(worker.current));
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
    const Scheduler::Segment& segment = trial->segment();
    std::optional<TrialResult> result;
    std::exception_ptr failure;
    try {
      if (!trial->was_stopped()) result = trial->result();
    } catch (...) {
      failure = std::current_exception();
    }
    trial->unlock();  // another worker may continue the trial at once
    if (result)
      record(segment, *result);
    else if (failure)
      record_failure(segment, failure);
    else
      record_part(*trial);
    const std::lock_guard lock(mutex_);
    std::erase(unrecorded_, trial);
  }
}

void SweepRun::record_part(TrialRun& trial) {
  const Scheduler::Segment& segment = trial.segment();
  try {
    directory_.add_part(segment.trial, trial.run().steps_done, trial.seconds());
  } catch (const WriteError&) {
    return record_failure(segment, std::current_exception());
  }
  scheduler_.add_part(segment.trial, trial.run().steps_done, trial.seconds());
  scheduler_.requeue(segment);
}

// A full disk or a limit on threads is not a failure of the trial: the sweep ends, and retries the
// trial when it is resumed.
void SweepRun::record_failure(const Scheduler::Segment& segment, const std::exception_ptr& cause) {
  const auto end_sweep = [&](const Error& error) {
    fail(fmt::format("trial {}: {}; once this is fixed, continue with: {} sweep --resume {}",
                     segment.trial, error.what(), program_word(),
                     shell_word(directory_.root().string())));
    scheduler_.requeue(segment);
  };
  try {
    std::rethrow_exception(cause);
  } catch (const WriteError& error) {
    end_sweep(error);
  } catch (const ThreadRefused& error) {
    end_sweep(error);
  } catch (const std::exception& error) {
    record(segment, {.state = TrialState::kFailed, .message = error.what()});
  }
}

void SweepRun::record(const Scheduler::Segment& segment, const TrialResult& result) {
  try {
    directory_.add_result(segment.trial, segment.rung, result);
  } catch (const WriteError&) {  // the scheduler must not act on a result that is not recorded
    return record_failure(segment, std::current_exception());
  }
  scheduler_.finish(segment, result);
  if (trials_.ended) trials_.ended(segment.trial, result);
}

void SweepRun::end_early(std::size_t trial) {
  const std::lock_guard lock(mutex_);
  ending_.push_back(trial);  // a worker may be about to start it
  for (const Worker& worker : workers_)
    if (worker.current && worker.current->segment().trial == trial) worker.current->end_early();
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
  const std::lock_guard lock(mutex_);
  for (const Worker& worker : workers_)
    if (worker.current) worker.current->run().interrupt();
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
      out.push_back({.trial = worker.current->segment().trial,
                     .first = worker.current->first_length(),
                     .done = worker.current->length(),
                     .until = worker.current->segment().until});
  return out;
}

}  // namespace muo::kit
