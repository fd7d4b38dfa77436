#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y[i] <- the column in [0, vocab) at which x[i] is largest; the first one in case of a
// tie. NaNs are never chosen; a row that consists of NaNs gives column 0. All backends
// return the same result.
struct ArgmaxArgs {
  Tensor y;  // (n) int32, out
  Tensor x;  // (n, padded vocab) fp32 or bf16
  std::int64_t vocab = 0;
};
void argmax(Stream& stream, const ArgmaxArgs& args);

}  // namespace muo
