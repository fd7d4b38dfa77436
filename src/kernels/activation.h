#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y = max(x, 0)^2 (So et al. 2021, "Primer"). y and x do not overlap. Here and below tensors are
// fp32 or bf16, all the same.
struct ReluSquaredArgs {
  Tensor y;  // any shape, out
  Tensor x;
};
void relu_squared(Stream& stream, const ReluSquaredArgs& args);

// dx = 2 max(x, 0) dy. dx may be dy.
struct ReluSquaredBackwardArgs {
  Tensor dx;  // out
  Tensor dy;
  Tensor x;
};
void relu_squared_backward(Stream& stream, const ReluSquaredBackwardArgs& args);

}  // namespace muo
