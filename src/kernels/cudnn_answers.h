#pragma once

#include <cstdint>

#include "kernels/attention_choice.h"

namespace muo {

// What cuDNN 9.19 says of attention in bf16 on a Hopper GPU, where none can be asked. A test
// compares it with the library's own answers for a described one. `p`: AttentionSize, or what else
// has its b, t, heads and h.
template <class Problem>
LibraryAttention cudnn_answer(const Problem& p, AttentionDirection direction, bool deterministic) {
  const bool backward = direction == AttentionDirection::kBackward;
  if (p.h % 8 != 0) return {.why_not = "heads are multiples of 8"};
  if (backward && p.h > 256) return {.why_not = "gradients are of heads up to 256"};
  if (backward && p.t == 1) return {.why_not = "s_q = s_kv = 1 is not supported"};
  const std::int64_t rows = p.b * p.heads * p.t;
  return {.why_not = {},
          .workspace = !backward       ? 16
                       : deterministic ? 2 * rows * p.t
                                       : 4 * rows * p.h};
}

}  // namespace muo
