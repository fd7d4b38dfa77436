#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "base/recent_mean.h"
#include "kernels/step_scalars.h"
#include "trainer/checkpoint/budget_clock.h"
#include "trainer/run/token_count.h"

namespace muo::trainer {

struct RunConfig;

// Ends a run with --time-budget and sets the pace of its schedules, or repeats the paces of
// --positions-from. Only the steps' time counts: not that of the start, of evaluations, samples and
// saves.
//
// Every ten steps, or every step when fewer than 20 are left, the rest of the positions is divided
// by the steps that the rest of the time allows. Paces begin after the first three steps, whose
// times are not typical. The run ends where the next step would end later than half a step after
// the budget.
class Pacing {
 public:
  explicit Pacing(const RunConfig& config);

  // Counts `steps` more steps, done in `seconds`.
  void add(std::int64_t steps, double seconds);

  // Decides before `step`, at most once for each step. A run that has spent `until` seconds is
  // over for this process, with its pace unchanged.
  struct Decision {
    bool is_over = false;
    std::optional<Pace> pace = {};  // new, from this step on
  };
  Decision decide(std::int64_t step, double until = std::numeric_limits<double>::infinity());

  [[nodiscard]] const BudgetClock& clock() const { return clock_; }

 private:
  Decision change_to(const Pace& pace, bool is_over = false);

  // Steps from `step` on that take `seconds`.
  [[nodiscard]] double steps_in(double seconds, std::int64_t step) const;

  const std::vector<Pace>& repeated_;
  const TokenCount tokens_;
  BudgetClock clock_;
  const std::int64_t first_;  // step of this process
  std::int64_t done_;         // steps of the run
  std::int64_t decided_ = -1;
  RecentMean recent_;  // seconds of a token
};

// The paces in the metrics.jsonl of a run with --time-budget; the last one is where the run ended.
// Throws InputError.
std::vector<Pace> read_paces(const std::filesystem::path& metrics);

}  // namespace muo::trainer
