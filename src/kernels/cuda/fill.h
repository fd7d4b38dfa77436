#pragma once

#include <cstdint>

#include "runtime/cuda/launch.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {

inline constexpr int kFillThreads = 256;
static __global__ void __launch_bounds__(kFillThreads)
    fill_kernel(BF16* x, std::int64_t n, std::uint32_t seed, float step) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x;
  if (i >= n) return;
  std::uint32_t mixed = (static_cast<std::uint32_t>(i) + (seed << 28)) * 0x9E3779B1U;
  mixed = (mixed ^ mixed >> 15) * 0x85EBCA77U;
  mixed = (mixed ^ mixed >> 13) * 0xC2B2AE3DU;
  x[i] = from_float<BF16>((static_cast<float>(mixed >> 24) - 128.0F) * step);
}

// Fills x with values for comparing kernels: multiples of `step` in [-128 step, 128 step), in an
// order that does not repeat with any tile size. Seeds must be below 16.
inline void fill(NativeStream stream, BF16* x, std::int64_t n, std::uint32_t seed,
                 float step = 1.0F / 256.0F) {
  launch(fill_kernel, blocks_for(n, kFillThreads), kFillThreads, 0, stream, x, n, seed, step);
}

}  // namespace muo::cuda
