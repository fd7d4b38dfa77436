#include "kernels/cast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/host/simd_bf16.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

using ::testing::HasSubstr;

// Values for all cases of rounding: halves and their neighbours, both signs, denormals, the largest
// values, infinities and NaN; and a sample of all floats.
std::vector<float> hard_values() {
  std::vector<float> out;
  for (const std::uint32_t upper : {0x0000U, 0x0001U, 0x007FU, 0x0080U, 0x3F80U, 0x3F81U, 0x7F7EU,
                                    0x7F7FU, 0x7F80U, 0x7F81U, 0x7FC0U, 0x7FFFU})
    for (const std::uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      for (const std::uint32_t sign : {0U, 0x80000000U})
        out.push_back(std::bit_cast<float>(sign | upper << 16 | lower));
  for (std::uint32_t bits = 0; bits < 0xFFFF0000U; bits += 65521U * 7)
    out.push_back(std::bit_cast<float>(bits));
  return out;
}

// The nearer one of the two neighbours in bf16, found by comparing distances in double.
double nearest(float x) {
  const std::uint32_t down = std::bit_cast<std::uint32_t>(x) & 0xFFFF0000U;
  const double below{std::bit_cast<float>(down)};
  const float next = std::bit_cast<float>(down + 0x10000U);
  // Beyond the largest value, the upper neighbour is the next value of a format without
  // a largest value.
  const double above =
      std::isinf(next) ? std::copysign(0x1p128, static_cast<double>(x)) : double{next};
  const double to_below = std::abs(double{x} - below);
  const double to_above = std::abs(above - double{x});
  const bool even = (down >> 16 & 1U) == 0;
  if (to_below < to_above || (to_below == to_above && even)) return below;
  return double{next};
}

TEST(Cast, RoundsToTheNearestWithTiesToEven) {
  KernelStream stream;
  const std::vector<float> values = hard_values();
  const HostTensor x({static_cast<std::int64_t>(values.size())}, values);
  const HostTensor y(x.tensor().shape, DType::kBF16);
  cast(stream, {.y = y, .x = x});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BF16 got = y.values<BF16>()[i];
    if (std::isnan(values[i])) {  // its bits depend on the backend
      EXPECT_TRUE(std::isnan(to_f32(got)));
      continue;
    }
    EXPECT_EQ(got.bits, to_bf16(values[i]).bits) << values[i];
    if (std::isfinite(values[i]))
      EXPECT_EQ(double{to_f32(got)}, nearest(values[i])) << values[i];
    else
      EXPECT_EQ(to_f32(got), values[i]);
  }
}

TEST(Cast, WidensExactly) {
  KernelStream stream;
  const HostTensor x({1 << 16}, DType::kBF16);
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits)
    x.values<BF16>()[bits].bits = static_cast<std::uint16_t>(bits);
  const HostTensor y({1 << 16});
  cast(stream, {.y = y, .x = x});
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y.values()[bits]), bits << 16);
}

TEST(Cast, AddressesDoNotMatter) {
  KernelStream stream;
  const HostTensor wide = random_tensor({4099}, "x");
  const HostTensor narrow = wide.rounded(DType::kBF16);
  const Unaligned to_narrow{HostTensor({4099}, DType::kBF16)};
  const Unaligned to_wide{HostTensor({4099})};
  cast(stream, {.y = to_narrow, .x = wide});
  EXPECT_EQ(to_narrow.doubles(), narrow.doubles());
  cast(stream, {.y = to_wide, .x = Unaligned(narrow)});
  EXPECT_EQ(to_wide.doubles(), narrow.doubles());
}

TEST(Cast, RefusesInvalidConversions) {
  KernelStream stream;
  const HostTensor x({4});
  const HostTensor y({4});
  EXPECT_THAT(message_of<Error>([&] { cast(stream, {.y = y, .x = x}); }),
              HasSubstr("cast: x is fp32, expected bf16"));
  const HostTensor half({5}, DType::kBF16);
  EXPECT_THAT(message_of<Error>([&] { cast(stream, {.y = half, .x = x}); }),
              HasSubstr("cast: x is (4), expected (5)"));
}

TEST(SimdBF16, PartialLoadsAndStoresTouchOnlyTheirLanes) {
  for (std::int64_t count = 1; count < simd::kLanes; ++count) {
    const HostTensor in = random_tensor({count}, "in").rounded(DType::kBF16);  // exact size
    const HostTensor out({simd::kLanes}, DType::kBF16);
    const auto loaded = simd::load(in.values<BF16>().data(), simd::FirstLanes{count});
    simd::store(out.values<BF16>().data(), loaded, simd::FirstLanes{count});
    std::vector<float> whole(simd::kLanes);
    simd::store(whole.data(), loaded);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const bool inside = static_cast<std::int64_t>(i) < count;
      EXPECT_EQ(double{whole[i]}, inside ? in.doubles()[i] : 0.0);
      EXPECT_EQ(out.doubles()[i], inside ? in.doubles()[i] : 0.0);
    }
  }
}

TEST(SimdBF16, RoundingInRegistersIsThatOfAStore) {
  const std::vector<float> values = hard_values();
  simd::for_lanes(static_cast<std::int64_t>(values.size()), [&](std::int64_t i, auto lanes) {
    std::vector<float> got(simd::kLanes);
    simd::store(got.data(), simd::round_to_bf16(simd::load(values.data() + i, lanes)), lanes);
    for (std::size_t j = 0; j < got.size() && static_cast<std::size_t>(i) + j < values.size(); ++j)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got[j]),
                std::uint32_t{to_bf16(values[static_cast<std::size_t>(i) + j]).bits} << 16);
  });
}

}  // namespace
}  // namespace muo::test
