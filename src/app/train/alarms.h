#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/train/update_sizes.h"

namespace muo::app {

struct Alarm {
  std::string_view kind;  // "loss", "throughput", "data", "memory" or "update"
  std::string text;       // what is, what was normal, what to do: a line
};

// What is not as it was earlier in the same run. Of each kind at most one alarm in ten minutes,
// which says how many were left out. A few comparisons per step; of one thread.
class Alarms {
 public:
  // The share of a step that may be spent waiting for its batch. A GPU computes meanwhile, so that
  // nothing is lost until it is almost all of the step.
  static constexpr double kMostWaiting = 0.2, kMostWaitingOnGpu = 0.95;
  explicit Alarms(double most_waiting = kMostWaiting) : most_waiting_(most_waiting) {}

  struct Step {
    std::int64_t step = 0;
    double ms = 0;             // of the whole step
    double waited_ms = 0;      // of it, for the batch
    std::string outlier = {};  // what the guard says of it (kernels/commit.h); empty: ordinary
    std::optional<std::int64_t> memory = {};  // anonymous bytes of the process, where looked up
  };
  // `now`: seconds of a clock that does not go back.
  [[nodiscard]] std::vector<Alarm> after(const Step& step, double now);
  // Of each step after warm-up: a group's update (of scalars none) that for kStepsOff in a row was
  // not of a usual size.
  static constexpr int kStepsOff = 100;
  static constexpr double kLeastRatio = 1e-5, kMostRatio = 0.1;  // to its weights
  [[nodiscard]] std::vector<Alarm> after_update(const UpdateSizes& sizes, double now);
  // "loss 3, memory 1": alarms since the last ones of their kind. Empty: none.
  [[nodiscard]] std::string left_out() const;

 private:
  void check_speed(const Step& step, double now);
  void check_memory(std::int64_t bytes, double now);
  void raise(std::string_view kind, std::string text, double now);

  const double most_waiting_;
  std::vector<Alarm> raised_;
  std::deque<double> ms_, waited_ms_;  // of the newest steps
  std::int64_t steps_ = 0;
  std::optional<double> normal_ms_;                   // the least median of them so far
  std::optional<double> slow_since_, starved_since_;  // seconds
  std::optional<double> began_;                       // seconds
  std::optional<std::int64_t> normal_memory_;  // of the last alarm, first that when warmed up
  std::int64_t warm_memory_ = 0;
  struct Told {
    double at = 0;
    int left_out = 0;
  };
  std::map<std::string_view, Told> told_;
  std::map<std::string_view, int> off_;  // by group: steps in a row
};

}  // namespace muo::app
