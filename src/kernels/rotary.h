#pragma once

#include <cstdint>

#include "kernels/norm.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// cos and sin of p * base^(-2 j / h) for positions p < t and j < h/2, evaluated in double, once, at
// start-up. Su et al. 2021, "RoFormer", in the split-halves layout.
struct RotaryTableArgs {
  Tensor cos;  // (t, h/2) out, fp32 or bf16
  Tensor sin;  // (t, h/2) out, cos' dtype
  double base = 100000.0;
};
void rotary_table(Stream& stream, const RotaryTableArgs& args);

// In place on every head row (x1, x2) of h values, split in halves:
//   r = (x1 cos + x2 sin, -x1 sin + x2 cos)      rotation by minus theta, nanochat's sign
//   x <- scale * r * rstd, rstd = 1 / sqrt(mean(r^2) + eps)
// QK norm after rotary (nanochat gpt.py, CausalSelfAttention). A row's position is its index along
// t, plus `first_position`, plus its entry of `positions` if given; kernels check that the tables
// contain it. x, cos and sin have one dtype, fp32 or bf16; in bf16 x is rounded once, at the end.
struct RotaryNormArgs {
  Tensor x;     // (b, t, heads, h) in-out
  Tensor rstd;  // (b, t, heads) out, fp32
  Tensor cos;   // (>= first_position + t, h/2)
  Tensor sin;
  float scale = 1.0F;
  float eps = kRmsNormEps;
  std::int64_t first_position = 0;
  Tensor positions = {};  // (b) int32
};
void rotary_norm(Stream& stream, const RotaryNormArgs& args);

// In place on the gradient: dx holds d(output) on entry, d(input) on return. `y` is the output of
// the forward pass: with yhat = y / scale, dr = scale * rstd * (dy - yhat * mean(dy * yhat)), then
// the inverse rotation. All tensors except rstd have one dtype, fp32 or bf16.
struct RotaryNormBackwardArgs {
  Tensor dx;    // (b, t, heads, h) in-out
  Tensor y;     // (b, t, heads, h)
  Tensor rstd;  // (b, t, heads)
  Tensor cos;
  Tensor sin;
  float scale = 1.0F;
};
void rotary_norm_backward(Stream& stream, const RotaryNormBackwardArgs& args);
// Checks the arguments of rotary_norm_backward, for an operation that fuses it. Throws Error.
void check_arguments(const RotaryNormBackwardArgs& args);

}  // namespace muo
