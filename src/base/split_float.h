#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"
#include "base/host_device.h"

// An fp32 number as the bf16 that is nearest to it and the lower 16 of its own bits: 4 bytes, of
// which a reader of bf16 needs 2. The lower bits tell whether the upper ones were rounded up, but
// for a tie, 0x8000: then both neighbours of the bf16 are as near, and no 32 bits can hold which it
// was, as there are more numbers that round to an even bf16 than 2^16. A tie is stored one unit in
// the last place of fp32 nearer to the bf16 that it rounds to; every other number exactly, and NaN
// as a NaN.
namespace muo {

struct SplitFloat {
  BF16 upper;  // to_bf16(value)
  std::uint16_t lower = 0;
};

MUO_HOST_DEVICE constexpr SplitFloat split_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t odd = (bits >> 16) & 1U;
  const bool tie = (bits & 0xFFFFU) == 0x8000U;
  const std::uint32_t near = tie ? bits - 1 + 2 * odd : bits;
  return {to_bf16(value), static_cast<std::uint16_t>(near)};
}

MUO_HOST_DEVICE constexpr float join_float(BF16 upper, std::uint16_t lower) {
  const std::uint32_t rounded_up = lower > 0x8000U ? 1U : 0U;
  return std::bit_cast<float>(((std::uint32_t{upper.bits} - rounded_up) << 16) | lower);
}

}  // namespace muo
