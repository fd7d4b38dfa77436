#include "base/box_muller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/philox.h"
#include "contracted_box_muller.h"

namespace muo {
namespace {

// The bound on the relative error that the header states.
constexpr double kBound = 1e-13;

// cos(2 pi v) in long double, computed from the nearest quarter turn: exact except for its own
// rounding.
long double cosine(std::uint32_t second) {
  const long double quarters = static_cast<long double>(second) * 0x1p-30L;
  const long double nearest = std::nearbyint(quarters);
  const long double angle = (quarters - nearest) * std::numbers::pi_v<long double> / 2;
  switch (static_cast<int>(nearest) % 4) {
    case 0:
      return std::cos(angle);
    case 1:
      return -std::sin(angle);
    case 2:
      return -std::cos(angle);
    default:
      return std::sin(angle);
  }
}

long double radius(std::uint32_t first) {
  const long double u = (static_cast<long double>(first) + 1) * 0x1p-32L;
  return std::sqrt(-2 * (u > 0.5L ? std::log1p(u - 1) : std::log(u)));
}

// The extremes; neighbours of powers of two, of the roots of their halves and of quarter turns; and
// arbitrary words.
std::vector<std::uint32_t> words() {
  std::vector<std::uint32_t> out;
  for (int bit = 0; bit < 32; ++bit)
    for (const double at : {1.0, std::numbers::sqrt2, 1.5})
      for (int d = -3; d <= 3; ++d)
        out.push_back(
            static_cast<std::uint32_t>(static_cast<std::int64_t>(std::ldexp(at, bit)) + d));
  const CounterRandom random(5, "words");
  for (std::uint64_t i = 0; i < 200'000; ++i)
    out.push_back(static_cast<std::uint32_t>(random.bits(i)));
  return out;
}

TEST(BoxMuller, IsWithinItsBound) {
  double worst_radius = 0;
  double worst_cosine = 0;
  for (const std::uint32_t word : words()) {
    const auto error = [](double got, long double want) {
      return static_cast<double>(std::abs((static_cast<long double>(got) - want) / want));
    };
    if (word != 0xFFFFFFFF)  // u = 1
      worst_radius = std::max(worst_radius, error(box_muller_radius(word), radius(word)));
    if (word % 0x80000000U != 0x40000000U)  // a quarter turn
      worst_cosine = std::max(worst_cosine, error(box_muller_cosine(word), cosine(word)));
  }
  EXPECT_LT(worst_radius + worst_cosine, kBound) << worst_radius << ", " << worst_cosine;
  EXPECT_GT(worst_cosine, kBound / 10) << "this test looks where the error is largest";
}

TEST(BoxMuller, IsExactAtTheEndsAndSymmetric) {
  EXPECT_EQ(box_muller_radius(0xFFFFFFFF), 0.0);
  EXPECT_NEAR(box_muller_radius(0), std::sqrt(64 * std::numbers::ln2), 1e-12);
  EXPECT_EQ(box_muller_cosine(0x40000000), 0.0);
  EXPECT_EQ(box_muller_cosine(0xC0000000), 0.0);
  for (const std::uint32_t word : words()) {
    EXPECT_EQ(box_muller_cosine(0U - word), box_muller_cosine(word)) << word;
    EXPECT_EQ(box_muller_cosine(0x80000000U - word), -box_muller_cosine(word)) << word;
  }
}

// nvcc contracts multiply-adds; the host compiler does not (-ffp-contract=off).
TEST(BoxMuller, ContractionOfMultiplyAddsChangesNothing) {
  const std::vector<std::uint32_t> all = words();
  for (std::size_t i = 1; i < all.size(); ++i)
    ASSERT_EQ(box_muller(all[i - 1], all[i]), test::contracted_box_muller(all[i - 1], all[i]));
}

// FNV-1a of all bits, so that a run can be repeated years later with another compiler.
TEST(BoxMuller, NeverChanges) {
  const std::vector<std::uint32_t> all = words();
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (std::size_t i = 1; i < all.size(); ++i)
    hash = (hash ^ std::bit_cast<std::uint64_t>(box_muller(all[i - 1], all[i]))) * 0x100000001B3U;
  EXPECT_EQ(hash, 592946690302834045U);
}

}  // namespace
}  // namespace muo
