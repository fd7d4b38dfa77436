#pragma once

#include <cstdint>

#include "runtime/cuda/launch.h"
#include "runtime/cuda/stream_context.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Sums and maxima over threads, in the order of a butterfly, which is the same in every run; all
// threads get the same bits.

// The sum over kLanes adjacent lanes; kLanes is a power of two. The whole warp calls it.
template <int kLanes = 32, class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

template <int kLanes = 32>
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// Reduction over a one-dimensional block of whole warps, with at most 1024 threads. All threads
// must call it. It is a barrier, and may be called again immediately.
template <class T, class Combine>
__device__ __forceinline__ T block_reduce(T x, T neutral, const Combine& combine) {
  __shared__ T of_warps[32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warps = blockDim.x / 32;
  x = combine(x);
  if (lane == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = combine(lane < warps ? of_warps[lane] : neutral);
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

// Sums over the indices below n with a block of kThreads threads; add(i, sum) returns `sum`
// plus the term of i.
template <int kThreads, class Add>
__device__ __forceinline__ double block_sum_of(std::int64_t n, const Add& add) {
  double total = 0.0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
    total = add(i, total);
  return block_sum(total);
}

// Sums over a whole tensor take two launches: every block of the first launch writes one
// partial per sum, then one block per sum adds them up. The order depends only on the grid, so
// the bits are the same in every run. The partial of block b for sum s is
// StreamContext::partials[s * blocks + b].

inline constexpr int kSumThreads = 256;

// out <- [out if accumulate] + total, rounded to fp32 and, for bf16, once more.
template <class T>
__device__ __forceinline__ void put_float(T* out, double total, bool accumulate) {
  const double sum = accumulate ? static_cast<double>(to_float(*out)) + total : total;
  *out = from_float<T>(static_cast<float>(sum));
}

// Put is plain data with a __device__ function of (int sum, double total).
template <class Put>
__global__ void __launch_bounds__(kSumThreads)
    finish_sums_kernel(const double* partials, std::int64_t blocks, Put put) {
  partials += blockIdx.x * blocks;
  const double total = block_sum_of<kSumThreads>(
      blocks, [=](std::int64_t i, double sum) { return sum + partials[i]; });
  if (threadIdx.x == 0) put(static_cast<int>(blockIdx.x), total);
}

template <class Put>
void finish_sums(NativeStream stream, std::int64_t blocks, int sums, const Put& put) {
  launch(finish_sums_kernel<Put>, static_cast<unsigned>(sums), kSumThreads, 0, stream,
         static_cast<const double*>(context_of(stream).partials), blocks, put);
}

// Writes a block's partial in the first launch; the whole block calls it.
__device__ __forceinline__ void write_partial(double* partials, std::int64_t blocks, int sum,
                                              double value) {
  value = block_sum(value);
  if (threadIdx.x == 0) partials[sum * blocks + blockIdx.x] = value;
}

}  // namespace muo::cuda
