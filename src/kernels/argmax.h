#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y[i] <- the column among [0, vocab) at which x[i] is largest, of equal ones the first. What is
// not a number is not chosen; of a row without any number it is column 0. The same bits on every
// backend.
struct ArgmaxArgs {
  Tensor y;  // (n) int32, out
  Tensor x;  // (n, padded vocab) fp32 or bf16
  std::int64_t vocab = 0;
};
void argmax(Stream& stream, const ArgmaxArgs& args);

}  // namespace muo
