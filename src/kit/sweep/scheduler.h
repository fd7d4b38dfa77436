#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kit/sweep/trial.h"

namespace muo::kit {

// The state and progress of one trial.
struct TrialStatus {
  TrialState state = TrialState::kWaiting;
  std::size_t rung = 0;   // the next rung; the current one if the trial is paused or has ended
  TrialResult last = {};  // newest result; its `seconds` cover all training so far
  std::int64_t step = 0;  // last step trained: that of a result, or where a signal stopped it
  std::string message = {};
};

// The length of a trial's training so far (length_of()); estimated with a time budget.
std::int64_t length_done(const Trial& trial, const TrialStatus& status);

// Decides which trial trains next, and up to which length (length_of()). If there are rungs, it
// runs successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification"):
// when all trials have reached a rung, the best 1 of `factor`, and at least one, continue to the
// next. In asynchronous mode (ASHA; Li et al. 2020, "A system for massively parallel hyperparameter
// tuning", algorithm 2), whenever a device is free, a trial that is among the best of its rung so
// far continues, or otherwise a new one begins; when no new ones are left, at least one continues
// to the last rung. Trials that differ only in their seed are compared by their mean, and continue
// or stop together; ties go to the lower number. Decisions are a function of the order of results
// and promotions, or, in synchronous mode, of the results alone. Thread-safe.
class Scheduler {
 public:
  struct Options {
    std::int64_t factor = 1;
    bool asynchronous = false;
    bool open = false;  // trials may be added until close(); excludes halving
  };
  // Called for each promotion, in the order of the decisions, before it takes effect: with the
  // first trial of a point, and the rung to which all its trials now train. Returns false if the
  // promotion could not be recorded; it then has no effect, and there are no more segments.
  using Promoted = std::function<bool(std::size_t trial, std::size_t rung)>;
  Scheduler(const SweepPlan& plan, const Options& options, Promoted promoted = {});

  // Includes the trials that have been added to the plan since the last call.
  void add_trials();
  void close();

  // Replay what an earlier process recorded, in its order, before any other call. Promotions that
  // follow from it are not reported again.
  void replay_result(std::size_t trial, const TrialResult& result);
  void replay_promotion(std::size_t trial, std::size_t rung);
  // Adds training that a signal stopped before the end of its segment, in this process or an
  // earlier one.
  void add_part(std::size_t trial, std::int64_t step, double seconds);

  // A segment of training: one trial, from its current length to `until`.
  struct Segment {
    std::size_t trial = 0;
    std::size_t rung = 0;
    std::int64_t until = 0;
  };
  // Returns the next segment for a worker, blocking until there is one. Prefers groups that the
  // worker has captured, and among these the trial at the highest rung; then groups that no worker
  // has captured; then the group with the most waiting trials. From then on the worker counts as
  // having captured the group. While blocked, calls `waiting` every 50 ms. Empty if no segment is
  // left, or stop() was called.
  [[nodiscard]] std::optional<Segment> next_trial(int worker,
                                                  const std::function<void()>& waiting = {});
  // Records that the worker's capture of the group no longer exists.
  void drop_group(int worker, std::size_t group);
  // Returns a segment of a waiting trial of the group, if there is one.
  [[nodiscard]] std::optional<Segment> take_waiting(std::size_t group);
  // Ends the segment with a result.
  void finish(const Segment& segment, const TrialResult& result);
  // Ends the segment without a result: the trial waits again.
  void requeue(const Segment& segment);
  // Stops a waiting trial. Returns false if the trial is not waiting.
  bool cancel(std::size_t trial);
  void stop();  // no more segments

  [[nodiscard]] std::vector<TrialStatus> status() const;
  // Estimates what is left to train (length_of()), including all of running segments.
  [[nodiscard]] std::int64_t length_left() const;

 private:
  [[nodiscard]] std::int64_t length_at(std::size_t trial, std::size_t rung) const;
  [[nodiscard]] std::size_t rungs() const { return plan_.rungs.empty() ? 1 : plan_.rungs.size(); }
  void add_trials_locked();
  [[nodiscard]] std::optional<std::size_t> choose(int worker) const;
  Segment begin(std::size_t trial);
  [[nodiscard]] bool has_work() const;
  void set_result(std::size_t trial, const TrialResult& result);
  void promote(std::size_t trial);
  [[nodiscard]] bool promote_point(std::size_t point, std::size_t rung);
  void decide();
  void decide_rung();
  bool promote_one(bool at_least_one);
  // A point whose trials have all reached the rung, or ended before it.
  struct PointAt {
    double score = 0;  // mean; infinite if a trial has no finite score or did not reach the rung
    std::size_t point = 0;
    bool is_beyond = false;  // a trial of the point was promoted beyond the rung
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
  std::set<std::pair<int, std::size_t>> captured_;  // pairs of worker and group
  bool open_ = false;
  bool stopped_ = false;
  bool replaying_ = false;
};

}  // namespace muo::kit
