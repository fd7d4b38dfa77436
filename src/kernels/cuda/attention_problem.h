#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention.h"

namespace muo::cuda {

// What the choice between implementations of attention depends on, and what their plans are kept
// by; the same for both directions.
struct AttentionProblem {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;  // at most t: a wider one hides nothing more
  float scale = 1.0F;

  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

template <class Args>
AttentionProblem attention_problem_of(const Args& args) {
  const Shape& q = args.q.shape;
  return {.b = q[0],
          .t = q[1],
          .heads = q[2],
          .kv_heads = args.k.shape[2],
          .h = q[3],
          .window = args.window < q[1] ? args.window : q[1],
          .scale = args.scale};
}

inline AttentionProblem problem_of(const AttentionArgs& args) { return attention_problem_of(args); }
inline AttentionProblem problem_of(const AttentionBackwardArgs& args) {
  return attention_problem_of(args);
}

// One line: which implementation computes it, and why that one.
std::string describe_attention(const AttentionProblem& problem, DType dtype);

}  // namespace muo::cuda
