#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace muo::cuda {

// What a library's plans of attention are kept by.
struct AttentionProblem {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;  // at most t: a wider one hides nothing more
  float scale = 1.0F;

  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

inline AttentionProblem problem_of(const AttentionSize& size) {
  return {.b = size.b,
          .t = size.t,
          .heads = size.heads,
          .kv_heads = size.kv_heads,
          .h = size.h,
          .window = std::min(size.window, size.t),
          .scale = size.scale};
}

}  // namespace muo::cuda
