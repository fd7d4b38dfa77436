#pragma once

#include <cstdint>

#include "kernels/attention_choice.h"

namespace muo {

// cuDNN 9.19's support for bf16 attention on a Hopper GPU, for use where cuDNN is not available. A
// test compares it with the answers of cuDNN itself for the properties of such a GPU. `p` is an
// AttentionSize or any type with the members b, t, heads and h.
template <class Problem>
LibraryAttention cudnn_answer(const Problem& p, AttentionDirection direction, bool deterministic) {
  const bool backward = direction == AttentionDirection::kBackward;
  if (p.h % 8 != 0) return {.why_not = "the head size is not a multiple of 8"};
  if (backward && p.h > 256) return {.why_not = "gradients need a head size up to 256"};
  if (backward && p.t == 1) return {.why_not = "s_q = s_kv = 1 is not supported"};
  const std::int64_t rows = p.b * p.heads * p.t;
  return {.why_not = {},
          .workspace = !backward       ? 16
                       : deterministic ? 2 * rows * p.t
                                       : 4 * rows * p.h};
}

}  // namespace muo
