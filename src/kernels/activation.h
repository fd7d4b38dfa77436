#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y = max(x, 0)^2 (So et al. 2021, "Primer"). y may be x. Here and below tensors are fp32 or bf16,
// all the same.
struct ReluSquaredArgs {
  Tensor y;  // any shape, out
  Tensor x;
};
void relu_squared(Stream& stream, const ReluSquaredArgs& args);

// dx = 2 max(x, 0) dy, of y = max(x, 0)^2: x itself need not be kept. The root of a rounded square,
// rounded, is the number that was squared, so nothing is lost where y is neither denormal
// (max(x, 0) below 1.1e-19) nor infinite (from 1.9e19). dx may be dy.
struct ReluSquaredBackwardArgs {
  Tensor dx;  // out
  Tensor dy;
  Tensor y;
};
void relu_squared_backward(Stream& stream, const ReluSquaredBackwardArgs& args);

}  // namespace muo
