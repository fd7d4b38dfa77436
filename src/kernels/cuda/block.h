#pragma once

#include "runtime/cuda/launch.h"

namespace muo::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Sums and maxima over threads. The order is that of a butterfly, the same on every run; all
// threads get the same bits.

// Over kLanes neighbouring lanes, a power of two; the whole warp calls it.
template <int kLanes = 32, class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Of a one-dimensional block of whole warps, 1024 threads at most. All threads call it; it is a
// barrier, and may be called again at once.
template <class T, class Combine>
__device__ __forceinline__ T block_reduce(T x, T neutral, const Combine& combine) {
  __shared__ T parts[32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warps = blockDim.x / 32;
  x = combine(x);
  if (lane == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = combine(lane < warps ? parts[lane] : neutral);
  __syncthreads();
  return x;
}

template <class T>
__device__ __forceinline__ T block_sum(T x) {
  return block_reduce(x, T{0}, [](T v) { return warp_sum(v); });
}

__device__ __forceinline__ float block_max(float x) {
  return block_reduce(x, -INFINITY, [](float v) { return warp_max(v); });
}

}  // namespace muo::cuda
