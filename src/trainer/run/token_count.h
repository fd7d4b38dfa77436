#pragma once

#include <cstdint>

namespace muo::trainer {

// Counts a run's tokens from its start. Resuming may change the batch, so the tokens of earlier
// steps are taken from the checkpoint.
struct TokenCount {
  std::int64_t first_step = 0, trained = 0;  // `trained`: tokens before that step
  std::int64_t per_step = 0;                 // from that step on

  // Tokens before `step`; step >= first_step.
  [[nodiscard]] std::int64_t before(std::int64_t step) const {
    return trained + (step - first_step) * per_step;
  }
};

}  // namespace muo::trainer
