#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"
#include "base/host_device.h"

// Splits an fp32 number into the nearest bf16 and the lower 16 of its own bits: 4 bytes, of which a
// reader of bf16 needs only 2. The lower bits show whether the upper half was rounded up, except
// for a tie (0x8000): the number lies midway between two bf16, and 32 bits cannot record on which
// side of the even one, because more than 2^16 numbers round to it. A tie is therefore stored one
// fp32 unit in the last place nearer to the bf16 that it rounds to. Every other number is stored
// exactly, and NaN as a NaN.
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
