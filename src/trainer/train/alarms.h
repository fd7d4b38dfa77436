#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/train/update_sizes.h"

namespace muo::trainer {

struct Alarm {
  std::string_view kind;  // "loss", "throughput", "data", "memory" or "update"
  std::string text;       // one line: the value, the normal value, the remedy
};

// Detects when a run departs from its own earlier behaviour. Raises at most one alarm of each kind
// in ten minutes, with the number suppressed since the previous one. Costs a few comparisons per
// step. Not thread-safe.
class Alarms {
 public:
  // The largest share of a step that may be spent waiting for its batch without an alarm. A GPU
  // computes during the wait, so no time is lost until the wait takes almost the whole step.
  static constexpr double kMaxWaiting = 0.2, kMaxWaitingOnGpu = 0.95;
  explicit Alarms(double max_waiting = kMaxWaiting) : max_waiting_(max_waiting) {}

  struct Step {
    std::int64_t step = 0;
    double ms = 0;             // the whole step
    double waited_ms = 0;      // the part of `ms` spent waiting for the batch
    std::string outlier = {};  // the guard's text (kernels/commit.h); empty: no outlier
    std::optional<std::int64_t> memory = {};  // anonymous bytes of the process, if measured
  };
  // Returns the alarms that this step raises. `now`: seconds of a monotonic clock.
  [[nodiscard]] std::vector<Alarm> after_step(const Step& step, double now);
  // Forgets the time that steps have taken: steps of another batch begin.
  void forget_speed();
  // Returns the alarms for the update of a step after warm-up: one for each group, except scalars,
  // whose update has had an unusual size for kUnusualSteps steps in a row.
  static constexpr int kUnusualSteps = 100;
  // RMS of the update over RMS of the weights.
  static constexpr double kMinRatio = 1e-5, kMaxRatio = 0.1;
  [[nodiscard]] std::vector<Alarm> after_update(const UpdateSizes& sizes, double now);
  // The number of alarms of each kind suppressed since the last one raised: "loss 3, memory 1";
  // empty if none.
  [[nodiscard]] std::string suppressed() const;

 private:
  void check_speed(const Step& step, double now);
  void check_memory(std::int64_t bytes, double now);
  void raise(std::string_view kind, std::string text, double now);

  const double max_waiting_;
  std::vector<Alarm> raised_;
  std::deque<double> ms_, waited_ms_;  // of the latest kWindow steps
  std::int64_t steps_ = 0;
  std::optional<double> normal_ms_;                   // the smallest median of ms_ so far
  std::optional<double> slow_since_, starved_since_;  // seconds
  std::optional<double> began_;                       // seconds
  std::optional<std::int64_t> normal_memory_;         // at the last alarm, or else after warm-up
  std::int64_t warm_memory_ = 0;
  struct LastAlarm {
    double at = 0;
    int suppressed = 0;
  };
  std::map<std::string_view, LastAlarm> last_;
  std::map<std::string_view, int> unusual_updates_;  // consecutive unusual updates, by group
};

}  // namespace muo::trainer
