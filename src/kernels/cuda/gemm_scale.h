#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::cuda {

// d <- beta c, where a product has nothing to add (k = 0); zero if c is absent. c may be d.
void scale_into(NativeStream stream, Tensor d, Tensor c, float beta);

}  // namespace muo::cuda
