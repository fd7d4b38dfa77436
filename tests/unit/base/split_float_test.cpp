#include "base/split_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace muo {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

float joined(float value) {
  const SplitFloat parts = split_float(value);
  return join_float(parts.upper, parts.lower);
}

// All lower halves of the numbers with one of these upper halves.
TEST(SplitFloat, KeepsNumbersExactlyAndTiesWithinAnUlp) {
  for (const std::uint32_t upper : {0x0000U, 0x0001U, 0x007FU, 0x0080U, 0x3F7FU, 0x3F80U, 0x4049U,
                                    0x7F7EU, 0x7F7FU, 0x8000U, 0x8001U, 0xBF7FU, 0xFF7FU})
    for (std::uint32_t lower = 0; lower < 0x10000U; ++lower) {
      const std::uint32_t bits = upper << 16 | lower;
      const auto value = std::bit_cast<float>(bits);
      const SplitFloat parts = split_float(value);
      ASSERT_EQ(parts.upper.bits, to_bf16(value).bits) << std::hex << bits;
      const float got = join_float(parts.upper, parts.lower);
      if (lower == 0x8000U) {
        ASSERT_EQ(bits_of(got), upper % 2 == 0 ? bits - 1 : bits + 1) << std::hex << bits;
      } else {
        ASSERT_EQ(bits_of(got), bits) << std::hex << bits;
      }
      // The bf16 of the stored number is the replica, and storing it again changes nothing.
      ASSERT_EQ(to_bf16(got).bits, parts.upper.bits) << std::hex << bits;
      ASSERT_EQ(bits_of(joined(got)), bits_of(got)) << std::hex << bits;
    }
}

TEST(SplitFloat, KeepsInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(joined(infinity), infinity);
  EXPECT_EQ(joined(-infinity), -infinity);
  for (const std::uint32_t nan : {0x7F800001U, 0x7F80FFFFU, 0x7FFFFFFFU, 0xFFFFFFFFU, 0xFFC00000U})
    EXPECT_TRUE(std::isnan(joined(std::bit_cast<float>(nan)))) << std::hex << nan;
}

}  // namespace
}  // namespace muo
