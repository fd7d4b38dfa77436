#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y <- x^T for each matrix of a batch, in y's dtype: fp32 or bf16, rounded to nearest, ties to
// even. y and x must not overlap.
struct TransposeArgs {
  Tensor y;  // (batch, C, R) out
  Tensor x;  // (batch, R, C)
};
void transpose(Stream& stream, const TransposeArgs& args);

}  // namespace muo
