#pragma once

#include <cstdint>
#include <span>

#include "app/options/options.h"

namespace muo::app {

// The token that a uniform number u in [0, 1) draws from `logits`, which are finite. Their softmax
// at the temperature is cut one after the other to the top_k most likely tokens, to the fewest most
// likely ones that reach top_p of what is left, and to those of at least min_p times the largest;
// what remains counts in proportion. All in double; of equal logits the lower token is more likely.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, double u);

}  // namespace muo::app
