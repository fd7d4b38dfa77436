#pragma once

#include "runtime/cuda/launch.h"

namespace muo::cuda {

// PyTorch's lerp, whose form depends on the weight.
__device__ __forceinline__ float lerp(float a, float b, float weight) {
  return weight < 0.5F ? fmaf(weight, b - a, a) : fmaf(weight - 1.0F, b - a, b);
}

}  // namespace muo::cuda
