#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/split_float.h"
#include "kernels/host/simd_bf16.h"
#include "runtime/tensor.h"

// Masters as kernels read and write them: fp32, or (weight of uint16) split between it and the
// replica (base/split_float.h), of which a block at a time is made fp32.
namespace muo::host {

inline constexpr std::int64_t kMasterBlock = 512;

// body(values, begin, count) for all elements: fp32 values of elements [begin, begin + count),
// which it writes, and reads if kReads.
template <bool kReads, class Body>
void with_master(const Tensor& weight, const Tensor& replica, const Body& body) {
  const std::int64_t n = weight.numel();
  if (weight.dtype != DType::kU16) {
    body(weight.as<float>(), std::int64_t{0}, n);
    if (replica) simd::copy(replica.as<BF16>(), weight.as<float>(), n);
    return;
  }
  alignas(64) std::array<float, kMasterBlock> values;
  for (std::int64_t begin = 0; begin < n; begin += kMasterBlock) {
    std::uint16_t* __restrict lower = weight.as<std::uint16_t>() + begin;
    BF16* __restrict upper = replica.as<BF16>() + begin;
    const auto count = static_cast<std::size_t>(std::min(kMasterBlock, n - begin));
    if constexpr (kReads)
      for (std::size_t i = 0; i < count; ++i)
        values[i] = join_float(upper[i], lower[i]);
    body(values.data(), begin, static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const SplitFloat parts = split_float(values[i]);
      upper[i] = parts.upper;
      lower[i] = parts.lower;
    }
  }
}

}  // namespace muo::host
