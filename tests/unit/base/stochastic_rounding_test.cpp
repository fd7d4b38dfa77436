#include "base/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace muo {
namespace {

const CounterRandom kRandom(0, "transformer.wte.weight");

float rounded(float value, std::uint32_t noise) {
  return to_f32(round_stochastically(value, noise));
}

TEST(StochasticRounding, RoundsUpForAsManyNoisesAsTheLowBitsSay) {
  for (const float value : {1.0F + 0x1.8p-9F, -3.14159F, 0x1.234568p-130F, 65535.5F}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const float below = std::bit_cast<float>(bits & 0xFFFF0000U);
    const float above = std::bit_cast<float>((bits & 0xFFFF0000U) + 0x10000U);
    std::uint32_t larger = 0;
    for (std::uint32_t noise = 0; noise < 0x10000U; ++noise) {
      const float got = rounded(value, noise);
      ASSERT_TRUE(got == below || got == above) << value << " became " << got;
      larger += got == above ? 1 : 0;
    }
    EXPECT_EQ(larger, bits & 0xFFFFU) << value;
  }
}

TEST(StochasticRounding, KeepsBf16ValuesAndNaNs) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t noise : {0U, 1U, 0x8000U, 0xFFFFU}) {
    for (const float value : {0.0F, -0.0F, 1.5F, -0x1.fep127F, 0x1p-133F, infinity, -infinity})
      EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded(value, noise)),
                std::bit_cast<std::uint32_t>(value));
    for (const std::uint32_t nan : {0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0xFFC00000U})
      EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(nan), noise))) << nan;
  }
}

// Golden values: the noise must not change between resumed runs or backends.
TEST(RoundingNoise, NeverChanges) {
  EXPECT_EQ(RoundingNoise(kRandom, 0)(0), 1928980289U);
  EXPECT_EQ(RoundingNoise(kRandom, 12)(345), 3979661105U);
  EXPECT_EQ(RoundingNoise(kRandom, 12)((std::int64_t{1} << 32) + 345), 386790238U);
  EXPECT_EQ(RoundingNoise(CounterRandom(0, "lm_head.weight"), 12)(345), 2630033511U);
}

// Chi-squared of 16 equal bins: 15 degrees of freedom, mean 15, deviation sqrt(30).
class Bins {
 public:
  void add(std::uint32_t noise) { ++counts_[noise >> 12], ++draws_; }
  [[nodiscard]] double deviations() const {
    double chi = 0;
    for (const int n : counts_)
      chi += std::pow(n - draws_ / 16, 2) / (draws_ / 16);
    return (chi - 15.0) / std::sqrt(30.0);
  }

 private:
  std::array<int, 16> counts_{};
  double draws_ = 0;
};

// Covers many elements in one update, and one element over many updates.
TEST(RoundingNoise, IsUniformOverElementsAndOverUpdates) {
  for (const std::int64_t base :
       {std::int64_t{0}, std::int64_t{1} << 20, (std::int64_t{1} << 33)}) {
    Bins first, second, first_of_one, second_of_one;
    const RoundingNoise of_update(kRandom, base);
    for (std::int64_t i = 0; i < 100000; ++i) {
      first.add(first_noise(of_update(base + i)));
      second.add(second_noise(of_update(base + i)));
      const std::uint32_t of_element = RoundingNoise(kRandom, i)(base);
      first_of_one.add(first_noise(of_element));
      second_of_one.add(second_noise(of_element));
    }
    for (const Bins* bins : {&first, &second, &first_of_one, &second_of_one})
      EXPECT_LT(std::abs(bins->deviations()), 6.0) << base;
  }
}

// Correlation of n pairs of independent numbers: mean 0, deviation 1 / sqrt(n).
TEST(RoundingNoise, IsUncorrelatedBetweenElementsUpdatesTensorsAndRoundings) {
  const auto centred = [](std::uint32_t noise) { return (noise + 0.5) / 65536.0 - 0.5; };
  const CounterRandom other(0, "transformer.wte.weighu");
  constexpr std::int64_t kPairs = 200000;
  std::array<double, 6> sums{};
  const std::array<const char*, 6> names{"next element", "row below",    "next update",
                                         "other half",   "other tensor", "2^32 further"};
  const RoundingNoise noise(kRandom, 5);
  for (std::int64_t i = 0; i < kPairs; ++i) {
    const double here = centred(first_noise(noise(i)));
    sums[0] += here * centred(first_noise(noise(i + 1)));
    sums[1] += here * centred(first_noise(noise(i + 768)));
    sums[2] += here * centred(first_noise(RoundingNoise(kRandom, 6)(i)));
    sums[3] += here * centred(second_noise(noise(i)));
    sums[4] += here * centred(first_noise(RoundingNoise(other, 5)(i)));
    sums[5] += here * centred(first_noise(noise(i + (std::int64_t{1} << 32))));
  }
  for (std::size_t k = 0; k < sums.size(); ++k)  // the variance is 1 / 12
    EXPECT_LT(std::abs(sums[k]) * 12, 6.0 * std::sqrt(double{kPairs})) << names[k];
}

}  // namespace
}  // namespace muo
