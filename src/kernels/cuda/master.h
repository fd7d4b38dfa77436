#pragma once

#include <cstdint>

#include "base/split_float.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/dispatch.h"

namespace muo::cuda {

// Access to master weights, N elements at a time: fp32 with an optional replica, 4 bytes read and 4
// or 6 written per element; or split between a uint16 weight and the replica (base/split_float.h),
// 4 bytes read and 4 written.
struct WholeMaster {
  float* weight;
  BF16* replica;
  template <int N>
  __device__ __forceinline__ Pack<N> load(std::int64_t i) const {
    return load_wide<N>(weight + i);
  }
  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, const Pack<N>& values) const {
    store_wide(weight + i, values);
    if (replica != nullptr) store_wide(replica + i, values);
  }
};

struct SplitMaster {
  std::uint16_t* lower;
  BF16* upper;
  template <int N>
  __device__ __forceinline__ Pack<N> load(std::int64_t i) const {
    Pack<N> out;
    if constexpr (N == 1) {
      out.v[0] = join_float(upper[i], lower[i]);
    } else {
      static_assert(N == kWidth<BF16>);
      const uint4 high = *reinterpret_cast<const uint4*>(upper + i);
      const uint4 low = *reinterpret_cast<const uint4*>(lower + i);
      const std::uint32_t highs[4] = {high.x, high.y, high.z, high.w};
      const std::uint32_t lows[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int shift = k % 2 * 16;
        out.v[k] = join_float({static_cast<std::uint16_t>(highs[k / 2] >> shift)},
                              static_cast<std::uint16_t>(lows[k / 2] >> shift));
      }
    }
    return out;
  }
  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, const Pack<N>& values) const {
    if constexpr (N == 1) {
      const SplitFloat parts = split_float(values.v[0]);
      upper[i] = parts.upper;
      lower[i] = parts.lower;
    } else {
      static_assert(N == kWidth<BF16>);
      std::uint32_t highs[4], lows[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const SplitFloat first = split_float(values.v[2 * k]);
        const SplitFloat second = split_float(values.v[2 * k + 1]);
        highs[k] = first.upper.bits | std::uint32_t{second.upper.bits} << 16;
        lows[k] = first.lower | std::uint32_t{second.lower} << 16;
      }
      *reinterpret_cast<uint4*>(upper + i) = make_uint4(highs[0], highs[1], highs[2], highs[3]);
      *reinterpret_cast<uint4*>(lower + i) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
    }
  }
};

// Calls body(master).
template <class Body>
void with_master(const Tensor& weight, const Tensor& replica, const Body& body) {
  if (weight.dtype == DType::kU16)
    body(SplitMaster{weight.as<std::uint16_t>(), replica.as<BF16>()});
  else
    body(WholeMaster{weight.as<float>(), data_or_null<BF16>(replica)});
}

}  // namespace muo::cuda
