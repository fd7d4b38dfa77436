#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/sweep/trial_worker.h"
#include "base/terminal.h"

namespace muo {

// What a sweep shows: a line for each trial that ends, below them, on a terminal, the best, those
// that train and the time that is left.
class SweepView {
 public:
  SweepView(const SweepPlan& plan, int fd);

  void note(std::string_view text) { terminal_.lines(text); }
  // As things are now. Often.
  void show(const std::vector<TrialStatus>& status, const std::vector<SweepRun::Running>& running,
            std::int64_t steps_left);
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
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

// Trials with a score, best first: by how far they have come, then by their score.
std::vector<std::size_t> best_trials(const std::vector<TrialStatus>& status);

// "matrix-lr 0.02, seed 3"
std::string point_text(const Point& point);

}  // namespace muo
