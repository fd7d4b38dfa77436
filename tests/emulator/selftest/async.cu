// Products of a warpgroup whose operands are copied and stored, with a planted bug against each
// rule of the async proxy (../README.md).

#include "base/dtype.h"
#include "emulator/selftest/cases.h"
#include "emulator/warpgroup.h"

namespace muo::selftest {
namespace {

constexpr int kTile = 64;
constexpr int kTileBytes = kTile * kTile * 2;
constexpr unsigned kThreads = 128;
constexpr std::size_t kSharedBytes = 2 * kTileBytes + 8;

enum class Bug {
  kNone,
  kNoFenceAfterInit,
  kNoBarrierAfterInit,
  kNoWaitForCopy,
  kTooFewArrivals,
  kNoBegin,
  kSumsNotTold,
  kSumsTouched,
  kSumsRead,
  kSumsWritten,
  kTooFewGroups,
  kOperandOverwritten,
  kNoFenceBeforeProduct,
  kNoFenceBeforeCopy,
  kNoBarrierBeforeCopy,
  kWarpApart,
  kCopyLeftAlone,
  kProductLeftAlone,
};

MUO_SHARED_MEMORY

// out = 2 a b^T + 2 a b^T + c b^T, where the second a is doubled in place, and c copied over it.
template <Bug kBug>
__global__ void multiply(float* out, const cuda::TileMap a, const cuda::TileMap b,
                         const cuda::TileMap c) {
  std::byte* const shared = shared_memory<std::byte>();
  const cuda::SharedAddress left = cuda::shared_address(shared), right = left + kTileBytes,
                            barrier = right + kTileBytes;
  const auto add = [&](float(&sums)[8][4]) {
    for (int k = 0; k < 4; ++k)
      cuda::multiply_add_rows(sums, cuda::along_rows(left) + 32 * k,
                              cuda::along_rows(right) + 32 * k);
    cuda::commit_products();
  };
  const auto fence_unless = [](bool bug) {
    if (!bug) cuda::show_barriers();
  };
  // This thread's part of its warp's rows of the left tile.
  auto* const own = reinterpret_cast<BF16*>(shared + 64 * threadIdx.x);
  const auto scale_own = [&](float factor) {
    for (int i = 0; i < 32; ++i)
      own[i] = to_bf16(factor * to_f32(own[i]));
  };

  if (threadIdx.x == 0) {
    cuda::init_barrier(barrier, kBug == Bug::kTooFewArrivals ? 2 : 1);
    fence_unless(kBug == Bug::kNoFenceAfterInit);
  }
  if constexpr (kBug != Bug::kNoBarrierAfterInit) __syncthreads();
  if (threadIdx.x == 0) {
    cuda::arrive_expecting(barrier, 2 * kTileBytes);
    cuda::copy_tile(left, a, 0, 0, 0, 0, barrier);
    cuda::copy_tile(right, b, 0, 0, 0, 0, barrier);
  }
  if constexpr (kBug != Bug::kNoWaitForCopy) cuda::wait_for_phase(barrier, 0);
  __syncwarp();

  float sums[8][4] = {};
  if constexpr (kBug == Bug::kSumsNotTold)
    cuda::begin_products();
  else if constexpr (kBug != Bug::kNoBegin)
    cuda::begin_products(sums);
  if constexpr (kBug == Bug::kSumsTouched) sums[0][0] = 1.0F;
  add(sums);
  if constexpr (kBug == Bug::kSumsWritten) sums[3][1] = 0.0F;
  if constexpr (kBug == Bug::kSumsRead)
    if (sums[3][1] != sums[3][1]) out += 1;
  if constexpr (kBug == Bug::kOperandOverwritten) scale_own(1.5F);
  cuda::wait_for_products<kBug == Bug::kTooFewGroups ? 1 : 0>(sums);
  for (auto& pair : sums)
    for (float& x : pair)
      x *= 2;

  scale_own(kBug == Bug::kOperandOverwritten ? 2 / 1.5F : 2.0F);
  fence_unless(kBug == Bug::kNoFenceBeforeProduct);
  __syncthreads();
  cuda::begin_products(sums);
  add(sums);
  cuda::wait_for_products<0>(sums);

  scale_own(0.0F);
  fence_unless(kBug == Bug::kNoFenceBeforeCopy);
  if constexpr (kBug != Bug::kNoBarrierBeforeCopy) __syncthreads();
  if (threadIdx.x == 0) {
    cuda::arrive_expecting(barrier, kTileBytes);
    cuda::copy_tile(left, c, 0, 0, 0, 0, barrier);
  }
  if constexpr (kBug != Bug::kCopyLeftAlone) {
    cuda::wait_for_phase(barrier, 1);
    if constexpr (kBug != Bug::kWarpApart) __syncwarp();
    cuda::begin_products(sums);
    add(sums);
    if constexpr (kBug != Bug::kProductLeftAlone) cuda::wait_for_products<0>(sums);
  }
  const unsigned row = threadIdx.x / 4 % 8 + threadIdx.x / 32 * 16;
  for (unsigned n = 0; n < 8; ++n)
    for (unsigned e = 0; e < 4; ++e)
      out[(row + e / 2 * 8) * kTile + 8 * n + threadIdx.x % 4 * 2 + e % 2] = sums[n][e];
}

template <Bug kBug>
bool products(bool planted) {
  constexpr unsigned kCount = kTile * kTile;
  const Array<BF16> a(kCount), b(kCount), c(kCount);
  const Array<float> out(kCount + 1);
  // Small integers: every product and sum is exact.
  for (unsigned i = 0; i < kCount; ++i) {
    a[i] = to_bf16(static_cast<float>(1 + i * 7919 % 13));
    b[i] = to_bf16(static_cast<float>(1 + i * 104729 % 11));
    c[i] = to_bf16(static_cast<float>(1 + i * 1299709 % 7));
  }
  const auto map = [](const Array<BF16>& x) {
    return cuda::TileMap{x.data(), {1, kTile, 1, kTile}, {}};
  };
  launch(planted ? multiply<kBug> : multiply<Bug::kNone>, 1, kThreads, kSharedBytes, out.data(),
         map(a), map(b), map(c));
  bool right = true;
  for (unsigned i = 0; i < kTile; ++i)
    for (unsigned j = 0; j < kTile; ++j) {
      float sum = 0;
      for (unsigned k = 0; k < kTile; ++k)
        sum += (4 * to_f32(a[i * kTile + k]) + to_f32(c[i * kTile + k])) * to_f32(b[j * kTile + k]);
      right = right && out[i * kTile + j] == sum;
    }
  return right;
}

}  // namespace

std::vector<Case> async_cases() {
  return {
      {"barrier initialised without a fence", products<Bug::kNoFenceAfterInit>},
      {"barrier used before it is initialised", products<Bug::kNoBarrierAfterInit>},
      {"copy used before it has arrived", products<Bug::kNoWaitForCopy>},
      {"phase that never ends", products<Bug::kTooFewArrivals>},
      {"product without begin_products", products<Bug::kNoBegin>},
      {"sums that begin_products is not told", products<Bug::kSumsNotTold>},
      {"sums written after begin_products", products<Bug::kSumsTouched>},
      {"sums read before the wait", products<Bug::kSumsRead>},
      {"sums written before the wait", products<Bug::kSumsWritten>},
      {"wait for one group too few", products<Bug::kTooFewGroups>},
      {"operand overwritten before the wait", products<Bug::kOperandOverwritten>},
      {"product of stores without a fence", products<Bug::kNoFenceBeforeProduct>},
      {"copy over stores without a fence", products<Bug::kNoFenceBeforeCopy>},
      {"copy into a tile in use", products<Bug::kNoBarrierBeforeCopy>},
      {"warp that has not met", products<Bug::kWarpApart>},
      {"copy that nobody waits for", products<Bug::kCopyLeftAlone>},
      {"product that nobody waits for", products<Bug::kProductLeftAlone>},
  };
}

}  // namespace muo::selftest
