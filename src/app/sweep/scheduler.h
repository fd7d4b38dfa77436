#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "app/sweep/trial.h"

namespace muo::app {

// Where each trial of a sweep is.
struct TrialStatus {
  TrialState state = TrialState::kWaiting;
  std::size_t rung = 0;   // the next to reach, or the one that it has reached or failed at
  TrialResult last = {};  // the newest result; `seconds` of all training so far
  std::int64_t step = 0;  // that it has come to, with a result or stopped by a signal on its way
  std::string message = {};
};

// Which trial trains next, and how far. Trials take part in successive halving if there are rungs
// (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification"): when all have come to a
// rung, the best of them, one of `factor` and at least one, go on to the next. Asynchronously
// (ASHA; Li et al. 2020, "A system for massively parallel hyperparameter tuning", algorithm 2):
// whenever a device is free, one that is among the best of its rung so far goes on, else a new one
// begins; when there are no new ones left, the last rung gets at least one. Trials that differ in
// their seed only are compared by their mean, and go on or stop together; of equals the lower
// number is better. What a sweep decides follows from the order of results and promotions, and
// synchronously from the results alone. Thread-safe.
class Scheduler {
 public:
  struct Options {
    std::int64_t factor = 1;
    bool asynchronous = false;
    bool open = false;  // more trials may come, until close(); not with halving
  };
  // Promotions are told to `promoted`, in the order in which they are decided, before they count:
  // the first trial of a point, and the rung that all its trials now train to. False: it could not
  // be written down; then it does not count, and there are no more stretches.
  using Promoted = std::function<bool(std::size_t trial, std::size_t rung)>;
  Scheduler(const SweepPlan& plan, const Options& options, Promoted promoted = {});

  // Takes in what has been added to the plan.
  void add_trials();
  void close();

  // What an earlier process has written down, in its order; before anything else. What they decide
  // is not told again.
  void replay_result(std::size_t trial, const TrialResult& result);
  void replay_promotion(std::size_t trial, std::size_t rung);
  // Training that a signal ended before its stretch was through, of this process or an earlier one.
  void add_part(std::size_t trial, std::int64_t step, double seconds);

  // A stretch of training: a trial from where it is to a step.
  struct Stretch {
    std::size_t trial = 0;
    std::size_t rung = 0;
    std::int64_t until = 0;
  };
  // The next stretch for a worker; blocks until there is one. Of groups that the worker has
  // captured first, and of these what has come farthest; then of groups that no worker has; then of
  // those most of whose trials wait. The worker has the group from then on. `waiting` is called
  // every so often while there is nothing to do. Empty: there will not be, or stop() was called.
  [[nodiscard]] std::optional<Stretch> next_trial(int worker,
                                                  const std::function<void()>& waiting = {});
  // The worker has the group no more.
  void drop_group(int worker, std::size_t group);
  // A trial of the group that waits now, if any.
  [[nodiscard]] std::optional<Stretch> take_waiting(std::size_t group);
  // The stretch has ended.
  void finish(const Stretch& stretch, const TrialResult& result);
  // It has not: the trial waits again.
  void give_back(const Stretch& stretch);
  // A trial that waits will not train; false: it does not wait.
  bool cancel(std::size_t trial);
  void stop();  // no more stretches

  [[nodiscard]] std::vector<TrialStatus> status() const;
  // Steps that are left to train, as far as can be told; those of running trials are.
  [[nodiscard]] std::int64_t steps_left() const;

 private:
  [[nodiscard]] std::int64_t step_of(std::size_t trial, std::size_t rung) const;
  [[nodiscard]] std::size_t rungs() const { return plan_.rungs.empty() ? 1 : plan_.rungs.size(); }
  void add_trials_locked();
  [[nodiscard]] std::optional<std::size_t> choose(int worker) const;
  Stretch begin(std::size_t trial);
  [[nodiscard]] bool may_go_on() const;
  void take(std::size_t trial, const TrialResult& result);
  void promote(std::size_t trial);
  [[nodiscard]] bool promote_point(std::size_t point, std::size_t rung);
  void decide();
  void decide_rung();
  bool promote_one(bool at_least_one);
  // Points all of whose trials have come to the rung, or ended before.
  struct PointAt {
    double score = 0;  // infinite: not all of them are numbers, or have come so far
    std::size_t point = 0;
    bool has_gone = false;  // beyond it
  };
  [[nodiscard]] std::vector<PointAt> points_at(std::size_t rung) const;
  [[nodiscard]] bool any(TrialState state) const;
  [[nodiscard]] std::optional<std::size_t> first_waiting(std::size_t group) const;

  const SweepPlan& plan_;
  const Options options_;
  const Promoted promoted_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TrialStatus> trials_;
  std::set<std::pair<int, std::size_t>> captured_;  // worker and group
  bool open_ = false;
  bool stopped_ = false;
  bool replaying_ = false;
};

}  // namespace muo::app
