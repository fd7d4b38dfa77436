#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "kit/sweep/sweep_run.h"

namespace muo::kit {

// Output of a sweep: a line for each trial that ends and, below them on a terminal, the best
// trials, the running ones and the remaining time.
class SweepView {
 public:
  using Clock = Terminal::Clock;
  SweepView(const SweepPlan& plan, int fd, Clock::time_point now = Clock::now());

  void note(std::string_view text) { terminal_.lines(text); }
  // Shows the current state; call this repeatedly.
  void show(const std::vector<TrialStatus>& status, const std::vector<SweepRun::Running>& running,
            std::int64_t length_left, Clock::time_point now = Clock::now());
  // Replaces the live lines by the table of the best trials.
  void finish(const std::vector<TrialStatus>& status);

 private:
  [[nodiscard]] std::string trial_line(std::size_t trial, const TrialStatus& status,
                                       bool best) const;

  const SweepPlan& plan_;
  Terminal terminal_;
  std::vector<TrialState> shown_;
  std::vector<std::int64_t> shown_length_;
  std::optional<double> best_;
  std::int64_t trained_ = 0;  // length of segments that have ended since the first show()
  const Clock::time_point started_;
};

// The score of a point over all its seeds.
struct PointScore {
  std::size_t point = 0;        // index in SweepPlan::points
  std::int64_t step = 0;        // of best_trial
  std::int64_t depth = 0;       // step that all its trials have reached; with time budgets: rung
  double mean = 0, spread = 0;  // spread: standard deviation; 0 with one seed
  std::size_t best_trial = 0;
};
// Returns the points, best first: by depth, descending, then by mean. Omits points with a trial
// that has no score or has reached another depth.
std::vector<PointScore> best_points(const SweepPlan& plan, const std::vector<TrialStatus>& status);

// Says which points are not significantly worse than the best one, by tests in pairs of equal
// seeds, at the given confidence of all judgements together; with one seed, that this is unknown.
// Empty for a single point.
std::string certainty_text(const SweepPlan& plan, const std::vector<TrialStatus>& status,
                           double confidence = 0.95);

// "the best is better than all others", or which points are not significantly worse. `undecided`:
// the number of one trial of each.
std::string best_text(const std::vector<std::string>& undecided);

// Formats a length_of(): "120", or "2m00s" with time budgets.
std::string length_text(const SweepPlan& plan, std::int64_t length);

// Formats a point: "matrix-lr 0.02, seed 3".
std::string point_text(const Point& point);

}  // namespace muo::kit
