#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/sweep/sweep_run.h"
#include "base/terminal.h"

namespace muo::app {

// What a sweep shows: a line for each trial that ends, below them, on a terminal, the best, those
// that train and the time that is left.
class SweepView {
 public:
  using Clock = Terminal::Clock;
  SweepView(const SweepPlan& plan, int fd, Clock::time_point now = Clock::now());

  void note(std::string_view text) { terminal_.lines(text); }
  // As things are now. Often.
  void show(const std::vector<TrialStatus>& status, const std::vector<SweepRun::Running>& running,
            std::int64_t steps_left, Clock::time_point now = Clock::now());
  // The table of the best, and no live lines any more.
  void finish(const std::vector<TrialStatus>& status);

 private:
  [[nodiscard]] std::string trial_line(std::size_t trial, const TrialStatus& status,
                                       bool best) const;

  const SweepPlan& plan_;
  Terminal terminal_;
  std::vector<TrialState> shown_;
  std::vector<std::int64_t> shown_step_;
  std::optional<double> best_;
  std::int64_t trained_ = 0;  // steps of trials that ended while this looked on
  const Clock::time_point started_;
};

// How a point has come out: over all its seeds.
struct PointScore {
  std::size_t point = 0;        // in SweepPlan::points
  std::int64_t step = 0;        // that all have come to
  double mean = 0, spread = 0;  // standard deviation; 0 with one seed
  std::size_t best_trial = 0;
};
// Best first: by how far they have come, then by their mean. Without those of which a trial has no
// score.
std::vector<PointScore> best_points(const SweepPlan& plan, const std::vector<TrialStatus>& status);

// "matrix-lr 0.02, seed 3"
std::string point_text(const Point& point);

}  // namespace muo::app
