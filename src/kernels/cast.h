#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// y <- x in y's dtype: fp32 to bf16 (to nearest, ties to even) or bf16 to fp32 (exact). y and x
// must not overlap.
struct CastArgs {
  Tensor y;  // any shape, out
  Tensor x;  // y's shape, the other dtype
};
void cast(Stream& stream, const CastArgs& args);

}  // namespace muo
