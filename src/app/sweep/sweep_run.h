#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/sweep/step_session.h"
#include "app/sweep/trial_run.h"

namespace muo::app {

// What the workers of a sweep share, and what who watches them may look at meanwhile.
class SweepRun {
 public:
  SweepRun(const SweepPlan& plan, Scheduler& scheduler, SweepDirectory& directory,
           TrialRun::Shared trials);

  // Trains trials on the devices of worker `index` until there are none left. On a thread of its
  // own; throws nothing.
  void work(int index);

  // Writes down what has come out of trials whose checkpoints are on the disk. Somebody has to call
  // it, often, until the workers have ended and once more. One thread.
  void record_results();

  // Trials that train are saved, and workers end. Any thread.
  void stop();
  // As the sweep cannot go on.
  void fail(const std::string& why);
  // The trial, if it trains, ends after the step at hand. Any thread.
  void end_early(std::size_t trial);

  struct Running {
    std::size_t trial = 0;
    std::int64_t first = 0, done = 0, until = 0;  // steps
  };
  [[nodiscard]] std::vector<Running> running() const;
  [[nodiscard]] int captures() const { return captures_; }
  // Why the sweep cannot go on; empty: it can.
  [[nodiscard]] std::string failure() const;

 private:
  struct Session {
    std::size_t group = 0;
    std::unique_ptr<StepSession> step;
  };
  struct Worker {
    std::vector<Session> sessions;  // the one that trained last is the last
    std::unique_ptr<TrialRun> current;
    std::vector<std::unique_ptr<TrialRun>> ended;  // not to be freed before it is recorded
  };
  void train(int index, const Scheduler::Stretch& stretch);
  StepSession& session_of(int index, std::size_t group);
  void make_room(int index, const CaptureGroup& group);
  void drop(int index, std::vector<Session>::iterator session);
  void fail_group(std::size_t group, const std::string& why);
  void end_current(Worker& worker);
  void free_recorded(Worker& worker);
  void await_recorded(Worker& worker);
  void record(const Scheduler::Stretch& stretch, const TrialResult& result);
  void record_part(TrialRun& trial);
  void record_failure(const Scheduler::Stretch& stretch, const std::exception_ptr& cause);
  Worker& at(int index) { return workers_[static_cast<std::size_t>(index)]; }

  const SweepPlan& plan_;
  Scheduler& scheduler_;
  SweepDirectory& directory_;
  const TrialRun::Shared trials_;
  std::atomic<int> captures_ = 0;
  mutable std::mutex mutex_;
  std::vector<Worker> workers_;
  std::vector<TrialRun*> unrecorded_;
  std::vector<std::size_t> ending_;  // trials that end_early() was called for
  std::string failure_;
};

}  // namespace muo::app
