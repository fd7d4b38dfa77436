#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kit/sweep/step_session.h"
#include "kit/sweep/trial_run.h"

namespace muo::kit {

// The workers of a sweep and their progress.
class SweepRun {
 public:
  SweepRun(const SweepPlan& plan, Scheduler& scheduler, SweepDirectory& directory,
           TrialRun::Shared trials);

  // Trains trials on the devices of worker `index` until none are left. Each worker calls it on its
  // own thread. Does not throw.
  void work(int index);

  // Records the results of trials whose checkpoints are on disk. One thread must call this
  // repeatedly until the workers have ended, and once more after that, because workers wait for it.
  void record_results();

  // Stops the sweep: running trials save a checkpoint, and workers end. May be called from any
  // thread.
  void stop();
  // Stops the sweep because of an error.
  void fail(const std::string& why);
  // Ends the trial after its current step if it is running. May be called from any thread.
  void end_early(std::size_t trial);

  struct Running {
    std::size_t trial = 0;
    std::int64_t first = 0, done = 0, until = 0;  // length_of()
  };
  [[nodiscard]] std::vector<Running> running() const;
  [[nodiscard]] int captures() const { return captures_; }
  // Returns why the sweep failed; empty if it did not fail.
  [[nodiscard]] std::string failure() const;

 private:
  struct Session {
    std::size_t group = 0;
    std::unique_ptr<StepSession> step;
  };
  struct Worker {
    std::vector<Session> sessions;  // least recently used first
    std::unique_ptr<TrialRun> current;
    std::vector<std::unique_ptr<TrialRun>> ended;  // kept until their results are recorded
  };
  void train(int index, const Scheduler::Segment& segment);
  StepSession& session_of(int index, std::size_t group);
  void make_room(int index, const CaptureGroup& group);
  void drop(int index, std::vector<Session>::iterator session);
  void fail_group(std::size_t group, const std::string& why);
  void end_current(Worker& worker);
  void free_recorded(Worker& worker);
  void await_recorded(Worker& worker);
  void record(const Scheduler::Segment& segment, const TrialResult& result);
  void record_part(TrialRun& trial);
  void record_failure(const Scheduler::Segment& segment, const std::exception_ptr& cause);
  Worker& at(int index) { return workers_[static_cast<std::size_t>(index)]; }

  const SweepPlan& plan_;
  Scheduler& scheduler_;
  SweepDirectory& directory_;
  const TrialRun::Shared trials_;
  std::atomic<int> captures_ = 0;
  mutable std::mutex mutex_;
  std::vector<Worker> workers_;
  std::vector<TrialRun*> unrecorded_;
  std::vector<std::size_t> ending_;  // trials for which end_early() was called
  std::string failure_;
};

}  // namespace muo::kit
