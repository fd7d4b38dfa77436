#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha * op(a) op(b) + beta * c, row-major, fp32 accumulation.
// op(a) is (m, k), op(b) is (k, n), c and d are (m, n); all 2-D, or all 3-D with an equal leading
// batch extent. `c` may be absent (then beta counts as 0 and old contents of d are not read), may
// be d itself, or may be a separate tensor that does not overlap d. d overlaps neither a nor b. For
// a linear layer y = x W^T use transpose_b; for dx = dy W neither; for dW = dy^T x transpose_a.
// All fp32; or a and b bf16, with c and d bf16 (one rounding, of the final value) or fp32 (weight
// gradients).
struct GemmArgs {
  Tensor d;    // out
  Tensor c{};  // optional
  Tensor a;
  Tensor b;
  float alpha = 1.0F;
  float beta = 0.0F;
  bool transpose_a = false;
  bool transpose_b = false;
};
void gemm(Stream& stream, const GemmArgs& args);

}  // namespace muo
