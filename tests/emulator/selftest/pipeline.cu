// A tensor-core product with a double buffer that asynchronous copies fill, with two planted bugs.

#include <cmath>

#include "base/dtype.h"
#include "emulator/ptx.h"
#include "emulator/selftest/cases.h"

namespace muo::selftest {
namespace {

constexpr int kTile = 64;  // rows of a and of b per block
constexpr int kDepth = 32;
constexpr int kStride = kDepth + 8;  // elements per row in shared memory: avoids bank conflicts
constexpr int kThreads = 128;

MUO_SHARED_MEMORY

// c(m, n) = a(m, k) b(n, k)^T by tiles of 64 by 64; four warps, 32 by 32 each.
template <bool kWaitTooLittle, bool kNoLastBarrier>
__global__ void multiply(float* c, const BF16* a, const BF16* b, int n, int k) {
  BF16* const tiles = shared_memory<BF16>();  // [stage][a or b][kTile][kStride]
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int row = static_cast<int>(blockIdx.y) * kTile;
  const int column = static_cast<int>(blockIdx.x) * kTile;
  const int warp_row = thread / 64 * 32;
  const int warp_column = thread / 32 % 2 * 32;
  const auto place = [&](int stage, int matrix, int i, int j) {
    return &tiles[((stage * 2 + matrix) * kTile + i) * kStride + j];
  };
  const auto fetch = [&](int stage, int from) {
    for (int i = thread; i < 2 * kTile * 4; i += kThreads) {
      const int matrix = i / (kTile * 4);
      const int r = i / 4 % kTile;
      const BF16* source = matrix == 0 ? a + (row + r) * k : b + (column + r) * k;
      cuda::copy_async_16(cuda::shared_address(place(stage, matrix, r, i % 4 * 8)),
                          source + from + i % 4 * 8, true);
    }
  };
  float sums[2][4][4] = {};
  fetch(0, 0);
  cuda::copy_async_commit();
  for (int from = 0, stage = 0; from < k; from += kDepth, stage ^= 1) {
    if (from + kDepth < k) fetch(stage ^ 1, from + kDepth);
    cuda::copy_async_commit();
    cuda::copy_async_wait<kWaitTooLittle ? 2 : 1>();
    __syncthreads();
    for (int step = 0; step < kDepth; step += 16) {
      std::uint32_t left[2][4];
      std::uint32_t right[2][4];
      for (int i = 0; i < 2; ++i) {
        cuda::load_matrices(
            left[i], cuda::shared_address(
                         place(stage, 0, warp_row + i * 16 + lane % 16, step + lane / 16 * 8)));
        cuda::load_matrices(right[i], cuda::shared_address(place(
                                          stage, 1, warp_column + i * 16 + lane % 8 + lane / 16 * 8,
                                          step + lane / 8 % 2 * 8)));
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
          cuda::multiply_add(sums[i][j], left[i], right[j / 2][j % 2 * 2],
                             right[j / 2][j % 2 * 2 + 1]);
    }
    if constexpr (!kNoLastBarrier) __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e)
        c[(row + warp_row + i * 16 + lane / 4 + e / 2 * 8) * n + column + warp_column + j * 8 +
          lane % 4 * 2 + e % 2] = sums[i][j][e];
}

bool product(void (*kernel)(float*, const BF16*, const BF16*, int, int)) {
  constexpr int kM = 128;
  constexpr int kN = 64;
  constexpr int kK = 160;
  const Array<BF16> a(kM * kK);
  const Array<BF16> b(kN * kK);
  const Array<float> c(kM * kN);
  // Multiples of 1/8 up to 6: every product and sum is exact.
  for (unsigned i = 0; i < a.size(); ++i)
    a[i] = to_bf16(static_cast<float>(static_cast<int>(i * 7919 % 97) - 48) / 8);
  for (unsigned i = 0; i < b.size(); ++i)
    b[i] = to_bf16(static_cast<float>(static_cast<int>(i * 104729 % 89) - 44) / 8);
  launch(kernel, dim3(kN / kTile, kM / kTile), kThreads,
         std::size_t{2} * 2 * kTile * kStride * sizeof(BF16), c.data(), a.data(), b.data(), kN, kK);
  bool right = true;
  for (unsigned i = 0; i < kM; ++i)
    for (unsigned j = 0; j < kN; ++j) {
      double sum = 0;
      for (unsigned l = 0; l < kK; ++l)
        sum += double{to_f32(a[i * kK + l])} * double{to_f32(b[j * kK + l])};
      right = right && double{c[i * kN + j]} == sum;
    }
  return right;
}

}  // namespace

std::vector<Case> pipeline_cases() {
  return {
      {"wait for one copy too few",
       [](bool planted) {
         return product(planted ? multiply<true, false> : multiply<false, false>);
       }},
      {"double buffer without its last barrier",
       [](bool planted) {
         return product(planted ? multiply<false, true> : multiply<false, false>);
       }},
  };
}

}  // namespace muo::selftest
