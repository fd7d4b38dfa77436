#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// out <- rows[index], with an index in device memory: the tokens of a micro-step within a loop.
struct TakeRowArgs {
  Tensor out;    // int32, shaped like one row
  Tensor rows;   // (n, ...) int32
  Tensor index;  // (1) int64, in [0, n)
};
void take_row(Stream& stream, const TakeRowArgs& args);

}  // namespace muo
