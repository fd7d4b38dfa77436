#pragma once

#include <cstdint>
#include <span>

#include "trainer/options/options.h"

namespace muo::trainer {

// Returns the token that a uniform number u in [0, 1) draws from `logits`, which must be finite.
// The candidates are, by softmax at the temperature, the top_k most likely tokens; of these, the
// fewest most likely ones whose probabilities reach top_p of the sum; and of these, the ones with
// at least min_p times the largest probability. u draws among the rest in proportion to their
// probabilities. Computed in double. Of equal logits, the lower token ranks higher. With a
// temperature of 0, returns the most likely token.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, double u);

}  // namespace muo::trainer
