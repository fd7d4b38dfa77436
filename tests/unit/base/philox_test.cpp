#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace muo {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known-answer vectors of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, ~std::uint64_t{0}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  // Digits of pi: all words differ, so that swapped words are detected.
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(CounterRandom, DependsOnSeedNameAndIndexAlone) {
  const CounterRandom random(1, "weights");
  EXPECT_EQ(random.bits(7), CounterRandom(1, "weights").bits(7));
  std::set<std::uint64_t> seen;
  for (const std::uint64_t seed : {1U, 2U})
    for (const char* name : {"weights", "order", ""})
      for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32})
        EXPECT_TRUE(seen.insert(CounterRandom(seed, name).bits(index)).second)
            << seed << name << index;
}

TEST(CounterRandom, UniformIsUniformBelowOne) {
  const CounterRandom random(3, "uniform");
  constexpr int kDraws = 100000;
  constexpr int kBins = 16;
  std::vector<int> bins(kBins, 0);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const float u = random.uniform(i);
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++bins[static_cast<std::size_t>(u * kBins)];
  }
  // Chi-squared with 15 degrees of freedom: mean 15, deviation sqrt(30); six deviations.
  double chi = 0;
  const double expected = static_cast<double>(kDraws) / kBins;
  for (const int n : bins)
    chi += (n - expected) * (n - expected) / expected;
  EXPECT_LT(chi, 15.0 + 6.0 * std::sqrt(30.0));
}

TEST(CounterRandom, NormalHasTheMomentsOfANormal) {
  const CounterRandom random(3, "normal");
  constexpr int kDraws = 200000;
  double moments[4] = {};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const auto x = static_cast<double>(random.normal(i));
    ASSERT_TRUE(std::isfinite(x));
    double power = 1;
    for (double& moment : moments)
      moment += (power *= x) / kDraws;
  }
  // The standard deviation of the mean of x^k is sqrt((E x^2k - (E x^k)^2) / n); the bound is six
  // of them.
  const double root = 6.0 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(moments[0], 0.0, root * 1.0);
  EXPECT_NEAR(moments[1], 1.0, root * std::sqrt(2.0));
  EXPECT_NEAR(moments[2], 0.0, root * std::sqrt(15.0));
  EXPECT_NEAR(moments[3], 3.0, root * std::sqrt(96.0));
}

}  // namespace
}  // namespace muo
