#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "runtime/cuda/stream_context.h"

namespace muo::cuda {

// Sums over a whole tensor take two launches: every block of the first leaves one partial for each
// sum, then one block a sum adds them up. The order depends on the grid alone, so the bits are the
// same on every run. partial(s, b) is at StreamContext::partials[s * blocks + b].

inline constexpr int kSumThreads = 256;

// Put is plain data with a __device__ function (int sum, double total).
template <class Put>
__global__ void __launch_bounds__(kSumThreads)
    finish_sums_kernel(const double* partials, std::int64_t blocks, Put put) {
  partials += blockIdx.x * blocks;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < blocks; i += kSumThreads)
    sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) put(static_cast<int>(blockIdx.x), sum);
}

template <class Put>
void finish_sums(NativeStream stream, std::int64_t blocks, int sums, const Put& put) {
  launch(finish_sums_kernel<Put>, static_cast<unsigned>(sums), kSumThreads, 0, stream,
         static_cast<const double*>(context_of(stream).partials), blocks, put);
}

// For the first launch: the whole block calls it.
__device__ __forceinline__ void leave_partial(double* partials, std::int64_t blocks, int sum,
                                              double value) {
  value = block_sum(value);
  if (threadIdx.x == 0) partials[sum * blocks + blockIdx.x] = value;
}

}  // namespace muo::cuda
