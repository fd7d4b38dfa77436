#pragma once

#include <cstdint>
#include <span>

#include "trainer/options/options.h"

namespace muo::trainer {

// Returns the token that a uniform number u in [0, 1) draws from `logits`, which must be finite.
// Candidates are the top_k most likely tokens by softmax at the temperature, of them the fewest
// most likely that reach top_p of their sum, of those the ones with at least min_p times the
// largest probability; u draws among the rest in proportion. Computed in double; among equal logits
// the lower token is more likely. A temperature of 0 returns the most likely token.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, double u);

}  // namespace muo::trainer
