#pragma once

#include <cstdint>

namespace muo::app {

// Counts the tokens of a run from its start on. A resume may change the batch, so that steps before
// it had others: what they add up to is in the checkpoint.
struct TokenCount {
  std::int64_t first_step = 0, trained = 0;  // the tokens before that step
  std::int64_t per_step = 0;                 // from it on

  // Those before `step`, which is not before first_step.
  [[nodiscard]] std::int64_t before(std::int64_t step) const {
    return trained + (step - first_step) * per_step;
  }
};

}  // namespace muo::app
