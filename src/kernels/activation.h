#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y = max(x, 0)^2 (So et al. 2021, "Primer"). y may be x. In this file all tensors of an operation
// have one dtype, fp32 or bf16.
struct ReluSquaredArgs {
  Tensor y;  // any shape, out
  Tensor x;
};
void relu_squared(Stream& stream, const ReluSquaredArgs& args);

// dx = 2 max(x, 0) dy, computed from y = max(x, 0)^2, so that x need not be kept. The rounded root
// of a rounded square is the number that was squared, so the result is exact unless y is denormal
// (max(x, 0) below 1.1e-19) or infinite (from 1.9e19). dx may be dy.
struct ReluSquaredBackwardArgs {
  Tensor dx;  // out
  Tensor dy;
  Tensor y;
};
void relu_squared_backward(Stream& stream, const ReluSquaredBackwardArgs& args);

}  // namespace muo
