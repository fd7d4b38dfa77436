#pragma once

#include "runtime/cuda/vector.h"

namespace muo::cuda {

__device__ __forceinline__ float relu_squared(float x) {
  const float r = x < 0.0F ? 0.0F : x;  // not fmaxf, which would turn NaN into zero
  return r * r;
}
// `root` is the square root of y, which was stored as T; kernels/activation.h explains why that
// suffices. An error in the last bits of `root` does not matter.
template <class T>
__device__ __forceinline__ float relu_squared_backward(float dy, float root) {
  const float r = to_float(from_float<T>(root));
  return (r + r) * dy;
}

}  // namespace muo::cuda
