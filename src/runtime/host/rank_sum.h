#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/dtype.h"

namespace muo {

// Sums of ranks' buffers, element by element, in rank order.
namespace rank_sum {

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<From, BF16>)
    return static_cast<To>(to_f32(value));
  else if constexpr (std::is_same_v<To, BF16>)
    return to_bf16(value);
  else
    return static_cast<To>(value);
}

// out[i] = sum over r of in[r][i]. `out` may be one of the inputs: each block is read from all
// inputs before it is written.
template <class Sum, class In, class Out>
void add(std::span<const std::byte* const> in, std::byte* out, std::int64_t count) {
  constexpr std::int64_t kBlock = 1024;  // the sums of a block stay in the L1 cache
  std::array<Sum, kBlock> sums;
  Out* result = reinterpret_cast<Out*>(out);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = count - begin < kBlock ? count - begin : kBlock;
    Sum* sum = sums.data();
    const In* first = reinterpret_cast<const In*>(in[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i)
      sum[i] = convert<Sum>(first[i]);
    for (const std::byte* peer : in.subspan(1)) {
      const In* next = reinterpret_cast<const In*>(peer) + begin;
      for (std::int64_t i = 0; i < n; ++i)
        sum[i] += convert<Sum>(next[i]);
    }
    for (std::int64_t i = 0; i < n; ++i)
      result[begin + i] = convert<Out>(sum[i]);
  }
}

}  // namespace rank_sum

// Integers wrap around. Throws Error for unsupported pairs of dtypes.
inline void add_ranks(std::span<const std::byte* const> in, DType in_dtype, std::byte* out,
                      DType out_dtype, std::int64_t count) {
  using rank_sum::add;
  if (in_dtype == DType::kF32 && out_dtype == DType::kF32)
    add<float, float, float>(in, out, count);
  else if (in_dtype == DType::kBF16 && out_dtype == DType::kBF16)
    add<float, BF16, BF16>(in, out, count);
  else if (in_dtype == DType::kBF16 && out_dtype == DType::kF32)
    add<float, BF16, float>(in, out, count);
  else if (in_dtype == DType::kF64 && out_dtype == DType::kF64)
    add<double, double, double>(in, out, count);
  else if (in_dtype == DType::kI32 && out_dtype == DType::kI32)
    add<std::uint32_t, std::int32_t, std::int32_t>(in, out, count);
  else if (in_dtype == DType::kI64 && out_dtype == DType::kI64)
    add<std::uint64_t, std::int64_t, std::int64_t>(in, out, count);
  else
    MUO_FAIL("no sum of ", name_of(in_dtype), " into ", name_of(out_dtype));
}

}  // namespace muo
