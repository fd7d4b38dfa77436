// Concurrent launches of several host threads that wait for each other, as ranks do.

#include <atomic>
#include <thread>

#include "emulator/selftest/cases.h"
#include "runtime/cuda/ptx.h"

namespace muo::selftest {
namespace {

constexpr unsigned kThreads = 64;
constexpr unsigned kRounds = 3;

// Each rank publishes its values, waits for the other's flag, and adds the other's values to its
// sum. Each round has its own place, so that none is written while it is read.
template <bool kPlanted>
__global__ void exchange(float* sum, float* own, const float* other, unsigned* own_flag,
                         unsigned* other_flag, float seed) {
  constexpr auto kStore = kPlanted ? std::memory_order_relaxed : std::memory_order_release;
  constexpr auto kLoad = kPlanted ? std::memory_order_relaxed : std::memory_order_acquire;
  const unsigned i = threadIdx.x;
  float total = 0.0F;
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned place = round * kThreads + i;
    own[place] = seed + static_cast<float>(place);
    __syncthreads();
    if (i == 0) {
      std::atomic_ref(*own_flag).store(round + 1, kStore);
      while (std::atomic_ref(*other_flag).load(kLoad) <= round)
        cuda::spin_pause();
    }
    __syncthreads();
    total += own[place] + other[place];
  }
  sum[i] = total;
}

bool exchanges(bool planted) {
  const Array<float> values[2] = {Array<float>(kRounds * kThreads),
                                  Array<float>(kRounds * kThreads)};
  const Array<float> totals[2] = {Array<float>(kThreads), Array<float>(kThreads)};
  unsigned flags[2] = {0, 0};
  const auto rank = [&](unsigned self) {
    const unsigned other = 1 - self;
    launch(planted ? exchange<true> : exchange<false>, 1, kThreads, 0, totals[self].data(),
           values[self].data(), values[other].data(), &flags[self], &flags[other],
           self == 0 ? 0.0F : 1000.0F);
  };
  {
    const std::jthread first(rank, 0);
    const std::jthread second(rank, 1);
  }
  bool right = true;
  for (const Array<float>& total : totals)
    for (unsigned i = 0; i < kThreads; ++i) {
      float want = 0.0F;
      for (unsigned round = 0; round < kRounds; ++round)
        want += 1000.0F + 2 * static_cast<float>(round * kThreads + i);
      right = right && total[i] == want;
    }
  return right;
}

// Block b waits for block (count - 1 - b) of the other rank's grid, so no grid can run its blocks
// one after another.
__global__ void wait_crosswise(unsigned* sum, unsigned* own_flags, const unsigned* other_flags) {
  if (threadIdx.x == 0) {
    cuda::store_release_system(&own_flags[blockIdx.x], 1U + blockIdx.x);
    const unsigned other = gridDim.x - 1 - blockIdx.x;
    unsigned seen = 0;
    while ((seen = cuda::load_acquire_system(&other_flags[other])) == 0)
      cuda::spin_pause();
    atomicAdd(sum, seen);
  }
  __syncthreads();
}

bool resident_grids(bool /*planted*/) {
  constexpr unsigned kBlocks = 4;
  unsigned flags[2][kBlocks] = {};
  unsigned sums[2] = {};
  const auto rank = [&](unsigned self) {
    launch(true, wait_crosswise, kBlocks, kThreads, 0, &sums[self], flags[self], flags[1 - self]);
  };
  {
    const std::jthread first(rank, 0);
    const std::jthread second(rank, 1);
  }
  return sums[0] == 1 + 2 + 3 + 4 && sums[1] == sums[0];
}

}  // namespace

std::vector<Case> rank_cases() {
  return {{"flag between ranks that orders nothing", exchanges},
          {"grids whose blocks wait for each other", resident_grids}};
}

}  // namespace muo::selftest
