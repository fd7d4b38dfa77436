// Ordering bugs: between the threads of a block or of a warp, and between blocks.

#include "emulator/selftest/cases.h"

namespace muo::selftest {
namespace {

template <bool kAfterWriting, bool kBeforeReuse>
__global__ void two_sums(float* out, const float* x) {
  const float once = block_sum<kAfterWriting, kBeforeReuse>(x[threadIdx.x]);
  const float twice = block_sum<kAfterWriting, kBeforeReuse>(2 * x[threadIdx.x]);
  if (threadIdx.x != 0) return;
  out[0] = once;
  out[1] = twice;
}

template <bool kPlanted>
__global__ void add_in_shared(float* out, const float* x) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0F;
  __syncthreads();
  if constexpr (kPlanted)
    sum += x[threadIdx.x];
  else
    atomicAdd(&sum, x[threadIdx.x]);
  __syncthreads();
  write_sums(out, sum);
}

// For blocks of 32 threads.
template <bool kPlanted>
__global__ void add_across_blocks(float* out, const float* x) {
  const float sum = warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x >= 2) return;
  const float part = threadIdx.x == 0 ? sum : 2 * sum;
  if constexpr (kPlanted)
    out[threadIdx.x] += part;
  else
    atomicAdd(&out[threadIdx.x], part);
}

template <bool kPlanted>
__global__ void tree_in_warp(float* out, const float* x) {
  __shared__ float parts[kValues];
  const unsigned i = threadIdx.x;
  parts[i] = x[i];
  for (unsigned step = 16; step > 0; step /= 2) {
    if constexpr (!kPlanted) __syncwarp();
    if (i % 32 < step) parts[i] += parts[i + step];
  }
  __syncthreads();
  float sum = 0.0F;
  for (unsigned warp = 0; warp < kValues / 32; ++warp)
    sum += parts[warp * 32];
  write_sums(out, sum);
}

template <bool kPlanted>
__global__ void barrier_in_branches(float* out, const float* x) {
  __shared__ float values[kValues];
  if (threadIdx.x < kValues / 2) {
    values[threadIdx.x] = x[threadIdx.x];
    if constexpr (kPlanted) __syncthreads();
  } else {
    values[threadIdx.x] = x[threadIdx.x];
    if constexpr (kPlanted) __syncthreads();
  }
  if constexpr (!kPlanted) __syncthreads();
  float sum = 0.0F;
  for (const float v : values)
    sum += v;
  write_sums(out, sum);
}

template <bool kPlanted>
__global__ void barrier_of_half_a_block(float* out, const float* x) {
  const float sum = block_sum(x[threadIdx.x]);
  if (!kPlanted || threadIdx.x < kValues / 2) __syncthreads();
  write_sums(out, block_sum(sum) / kValues);
}

template <bool kPlanted>
__global__ void shuffle_of_half_a_warp(float* out, const float* x) {
  float other = 0.0F;
  if (!kPlanted || threadIdx.x % 32 < 16) other = __shfl_xor_sync(~0U, x[threadIdx.x], 1);
  const float sum = block_sum(x[threadIdx.x]);
  write_sums(out, other >= 0.0F ? sum : 0.0F);
}

template <bool kPlanted>
__global__ void shuffle_after_exit(float* out, const float* x) {
  if (kPlanted && threadIdx.x == kValues - 1) return;
  const float sum = block_sum(x[threadIdx.x]);
  write_sums(out, sum);
}

template <bool kPlanted>
__global__ void last_writer_wins(float* out, const float* x) {
  __shared__ unsigned winner;
  if (kPlanted || threadIdx.x == kValues - 1) winner = threadIdx.x;
  __syncthreads();
  write_sums(out, block_sum(x[threadIdx.x]) * (winner == kValues - 1 ? 1.0F : -1.0F));
}

// Each of 8 blocks continues from the result of the one before it.
template <bool kPlanted>
__global__ void chain_of_blocks(float* out, const float* x) {
  if (threadIdx.x != 0 || (!kPlanted && blockIdx.x > 0)) return;
  const unsigned count = kPlanted ? kValues / gridDim.x : kValues;
  float sum = blockIdx.x > 0 ? out[0] : 0.0F;
  for (unsigned i = 0; i < count; ++i)
    sum += x[blockIdx.x * count + i];
  out[0] = sum;
  out[1] = 2 * sum;
}

template <bool kPlanted>
__global__ void trap(float* out, const float* x) {
  const float sum = block_sum(x[threadIdx.x]);
  if ((sum < 0.0F) != kPlanted && threadIdx.x == 33) __trap();
  write_sums(out, sum);
}

}  // namespace

std::vector<Case> barrier_cases() {
  return {
      {"barrier missing after writing",
       [](bool planted) { return sums(planted ? two_sums<false, true> : two_sums<true, true>); }},
      {"barrier missing before reuse",
       [](bool planted) { return sums(planted ? two_sums<true, false> : two_sums<true, true>); }},
      {"sum in shared memory without atomics",
       [](bool planted) { return sums(planted ? add_in_shared<true> : add_in_shared<false>); }},
      {"sum across blocks without atomics",
       [](bool planted) {
         return sums(planted ? add_across_blocks<true> : add_across_blocks<false>, kValues / 32,
                     32);
       }},
      {"no __syncwarp",
       [](bool planted) { return sums(planted ? tree_in_warp<true> : tree_in_warp<false>); }},
      {"barriers in two branches",
       [](bool planted) {
         return sums(planted ? barrier_in_branches<true> : barrier_in_branches<false>);
       }},
      {"barrier of half a block",
       [](bool planted) {
         return sums(planted ? barrier_of_half_a_block<true> : barrier_of_half_a_block<false>);
       }},
      {"full mask, half a warp",
       [](bool planted) {
         return sums(planted ? shuffle_of_half_a_warp<true> : shuffle_of_half_a_warp<false>);
       }},
      {"shuffle from a lane that left",
       [](bool planted) {
         return sums(planted ? shuffle_after_exit<true> : shuffle_after_exit<false>);
       }},
      {"last writer is expected to win",
       [](bool planted) {
         return sums(planted ? last_writer_wins<true> : last_writer_wins<false>);
       }},
      {"blocks in the order of their numbers",
       [](bool planted) {
         return sums(planted ? chain_of_blocks<true> : chain_of_blocks<false>, 8, 32);
       }},
      {"what a kernel itself finds wrong",
       [](bool planted) { return sums(planted ? trap<true> : trap<false>); }},
  };
}

}  // namespace muo::selftest
