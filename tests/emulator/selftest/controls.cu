// Features on which kernels may rely, without a bug: shuffles of every kind, votes, reductions,
// block shapes, threads that return early, atomics, concurrent launches, launches that are refused.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include "base/check.h"
#include "emulator/selftest/cases.h"

namespace muo::selftest {
namespace {

__global__ void all_shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* row = out + lane * 8;
  row[0] = __shfl_sync(~0U, lane, 5);
  row[1] = __shfl_sync(~0U, lane, 9, 8);  // lane 1 of each eight
  row[2] = __shfl_xor_sync(~0U, lane, 3);
  row[3] = __shfl_down_sync(~0U, lane, 2, 8);
  row[4] = __shfl_up_sync(~0U, lane, 1);
  row[5] = static_cast<int>(__shfl_xor_sync(~0U, make_double2(lane, -lane), 16).y);
  // Separate halves of a warp.
  row[6] = __shfl_xor_sync(lane < 16 ? 0xFFFFU : 0xFFFF0000U, lane, 8);
  row[7] = lane % 2 == 0 ? __shfl_xor_sync(0x55555555U, lane, 2) : 0;
}

bool shuffles(bool /*planted*/) {
  const Array<int> out(32 * 8);
  launch(all_shuffles, 1, 32, 0, out.data());
  bool right = true;
  for (int lane = 0; lane < 32; ++lane) {
    const int want[8] = {5,
                         lane / 8 * 8 + 1,
                         lane ^ 3,
                         lane % 8 < 6 ? lane + 2 : lane,
                         std::max(lane - 1, 0),
                         -(lane ^ 16),
                         lane ^ 8,
                         lane % 2 == 0 ? lane ^ 2 : 0};
    right = right && std::equal(want, want + 8, out.data() + lane * 8);
  }
  return right;
}

__global__ void all_votes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const int third = lane % 3 == 0 ? 1 : 0;
  unsigned* row = out + threadIdx.x * 8;
  row[0] = __ballot_sync(~0U, third);
  row[1] = static_cast<unsigned>(__any_sync(~0U, third) * 2 + __all_sync(~0U, third));
  row[2] = __reduce_add_sync(~0U, lane);
  row[3] = __reduce_max_sync(~0U, lane) - __reduce_min_sync(~0U, lane);
  row[4] = __match_any_sync(~0U, lane % 4);
  row[5] = static_cast<unsigned>(__syncthreads_count(third));
  row[6] = static_cast<unsigned>(__syncthreads_or(threadIdx.x == 40 ? 1 : 0));
  row[7] = static_cast<unsigned>(__syncthreads_and(threadIdx.x == 40 ? 0 : 1));
}

bool votes(bool /*planted*/) {
  constexpr unsigned kThreads = 64;
  const Array<unsigned> out(kThreads * 8);
  launch(all_votes, 1, kThreads, 0, out.data());
  bool right = true;
  for (unsigned i = 0; i < kThreads; ++i) {
    const unsigned want[8] = {0x49249249U, 2, 496, 31, 0x11111111U << i % 4, 22, 1, 0};
    right = right && std::equal(want, want + 8, out.data() + i * 8);
  }
  return right;
}

// A block of odd shape; threads of the last plane return before the barrier.
__global__ void transpose(int* out, int planes) {
  __shared__ int tile[2][3][5];
  if (static_cast<int>(threadIdx.z) >= planes) return;
  tile[threadIdx.z][threadIdx.y][threadIdx.x] =
      static_cast<int>((blockIdx.x * 2 + threadIdx.z) * 15 + threadIdx.y * 5 + threadIdx.x);
  __syncthreads();
  const unsigned i = threadIdx.y * 5 + threadIdx.x;
  out[(blockIdx.x * 2 + threadIdx.z) * 15 + i] = tile[threadIdx.z][i % 3][i / 3];
}

bool shapes(bool /*planted*/) {
  constexpr unsigned kBlocks = 3;
  const Array<int> out(kBlocks * 30);
  launch(transpose, kBlocks, dim3(5, 3, 3), 0, out.data(), 2);
  bool right = true;
  for (int i = 0; i < static_cast<int>(out.size()); ++i)
    right = right && out[static_cast<unsigned>(i)] == i / 15 * 15 + i % 15 % 3 * 5 + i % 15 / 3;
  return right;
}

__global__ void all_atomics(unsigned* out, float* sum) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&out[0], i);
  atomicMax(&out[1], i);
  atomicMin(&out[2], 500 - i);
  atomicOr(&out[3], 1U << i % 32);
  atomicAdd(sum, 0.5F);
  unsigned seen = atomicAdd(&out[4], 0);
  for (unsigned expected = seen + 1; expected != seen;) {
    expected = seen;
    seen = atomicCAS(&out[4], expected, expected + 2);
  }
}

bool atomics(bool /*planted*/) {
  constexpr unsigned kThreads = 96;
  const Array<unsigned> out(5);
  const Array<float> sum(1);
  out[2] = 1000;
  launch(all_atomics, 4, kThreads, 0, out.data(), sum.data());
  return out[0] == 383 * 384 / 2 && out[1] == 383 && out[2] == 117 && out[3] == ~0U &&
         out[4] == 2 * 384 && sum[0] == 192.0F;
}

__global__ void row_sums(float* out, const float* x) {
  const float sum = block_sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Two host threads, many blocks, launch after launch.
bool launches_at_once(bool /*planted*/) {
  constexpr unsigned kBlocks = 9;
  bool right[2] = {true, true};
  const auto rank = [&](unsigned self) {
    const Array<float> x(kBlocks * 96);
    const Array<float> out(kBlocks);
    for (unsigned round = 0; round < 5; ++round) {
      for (unsigned i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>((i + round + self) % 5);
      launch(row_sums, kBlocks, 96, 0, out.data(), x.data());
      for (unsigned row = 0; row < kBlocks; ++row)
        right[self] = right[self] && out[row] == std::accumulate(x.data() + row * 96,
                                                                 x.data() + row * 96 + 96, 0.0F);
    }
  };
  {
    const std::jthread first(rank, 0);
    const std::jthread second(rank, 1);
  }
  return right[0] && right[1];
}

bool refuses(dim3 grid, dim3 block, std::size_t shared_bytes, const std::string& what) {
  try {
    launch(all_shuffles, grid, block, shared_bytes, nullptr);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.find(what) != std::string::npos && text.find("all_shuffles") != std::string::npos;
  }
  return false;
}

bool refusals(bool /*planted*/) {
  return refuses(1, 1025, 0, "block of (1025") && refuses(0, 32, 0, "grid of (0") &&
         refuses(dim3(1, 1U << 16), 32, 0, "grid of (1, 65536") &&
         refuses(1, 32, std::size_t{228} << 10, "bytes of shared memory");
}

}  // namespace

std::vector<Case> control_cases() {
  return {{"shuffles", shuffles},
          {"votes and reductions", votes},
          {"block shapes", shapes},
          {"atomics", atomics},
          {"launches at once", launches_at_once},
          {"refused launches", refusals}};
}

}  // namespace muo::selftest
