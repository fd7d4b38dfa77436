#include "kernels/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/split_tensor.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

using ::testing::HasSubstr;
using Kind = InitialValues::Kind;

constexpr std::uint64_t kSeed = 42;
constexpr std::string_view kName = "transformer.wte.weight";
constexpr std::int64_t kWord = std::int64_t{1} << 32;  // later elements need the index's upper word
constexpr std::array kRandom = {Kind::kNormal, Kind::kUniform, Kind::kPositive};

std::vector<float> drawn(const InitialValues& init, std::int64_t begin, std::int64_t n,
                         std::int64_t count = 1, std::uint64_t seed = kSeed,
                         std::string_view name = kName) {
  KernelStream stream;
  const HostTensor y({n});
  draw(stream, {.y = y, .random = {seed, name}, .init = init, .begin = begin, .count = count});
  return {y.values().begin(), y.values().end()};
}

// The words of a draw: the counter consists of the index and FNV-1a of the name; the
// key is the seed.
std::array<std::uint32_t, 4> words_of(std::int64_t element) {
  std::uint64_t stream = 14695981039346656037U;
  for (const char c : kName) {
    stream ^= static_cast<std::uint64_t>(c);
    stream *= 1099511628211U;
  }
  const auto i = static_cast<std::uint64_t>(element);
  return philox(
      {static_cast<std::uint32_t>(i % 4294967296U), static_cast<std::uint32_t>(i / 4294967296U),
       static_cast<std::uint32_t>(stream % 4294967296U),
       static_cast<std::uint32_t>(stream / 4294967296U)},
      kSeed);
}

// The upper 24 bits of the first word as a double in [0, 1).
double uniform(std::int64_t element) {
  return std::floor(words_of(element)[0] / 256.0) / 16777216.0;
}

TEST(Draw, UniformValuesAreExactlyTheirFormulas) {
  const float a = 0.062513F;  // arbitrary
  for (const std::int64_t begin : {std::int64_t{0}, kWord - 700, 5 * kWord + 3}) {
    const std::vector<float> both = drawn({Kind::kUniform, double{a}}, begin, 1500);
    const std::vector<float> positive = drawn({Kind::kPositive, double{a}}, begin, 1500);
    for (std::size_t i = 0; i < both.size(); ++i) {
      const double u = uniform(begin + static_cast<std::int64_t>(i));
      // The product of two floats is exact in double, so it is rounded only once.
      EXPECT_EQ(both[i], static_cast<float>(double{a} * (2 * u - 1))) << begin << " + " << i;
      EXPECT_EQ(positive[i], static_cast<float>(double{a} * u)) << begin << " + " << i;
    }
  }
}

// The reference is the C library in long double. The cosine is computed from the distance to the
// nearest quarter turn where it is zero, because an angle near pi/2 would lose precision.
TEST(Draw, NormalValuesAreBoxMullersWithinTheirRoundings) {
  const float a = 0.8F;
  // Two roundings to fp32, of the normal number and of its product, and the bound of box_muller.h.
  const double bound = worst_case(2) + 1e-13;
  for (const std::int64_t begin : {std::int64_t{0}, kWord - 5000, 9 * kWord}) {
    const std::vector<float> values = drawn({Kind::kNormal, double{a}}, begin, 10'000);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto words = words_of(begin + static_cast<std::int64_t>(i));
      const long double u = (static_cast<long double>(words[0]) + 1) / 4294967296.0L;
      const long double quarters = static_cast<long double>(words[1]) / 1073741824.0L;
      const long double odd = quarters < 2 ? 1 - quarters : quarters - 3;
      const long double want = static_cast<long double>(a) * std::sqrt(-2 * std::log(u)) *
                               std::sin(std::numbers::pi_v<long double> / 2 * odd);
      const long double error = std::abs(static_cast<long double>(values[i]) - want);
      worst = std::max(worst, static_cast<double>(error / std::abs(want)));
    }
    EXPECT_LE(worst, bound) << begin;
    EXPECT_GT(worst, bound / 4) << begin;
  }
}

TEST(Draw, ConstantsAndLinesAreTheirFormulas) {
  for (const float v : drawn({Kind::kConstant, 0.2}, 7, 1003))
    EXPECT_EQ(v, 0.2F);
  for (const std::int64_t count : {1, 2, 12, 1003}) {
    const std::int64_t begin = count / 3;
    const std::vector<float> line = drawn({Kind::kLinear, 1.15, -0.1}, begin, count - begin, count);
    for (std::size_t i = 0; i < line.size(); ++i) {
      const auto at = static_cast<double>(begin) + static_cast<double>(i);
      const double want = count == 1 ? 1.15 : 1.15 - 0.1 * at / static_cast<double>(count - 1);
      EXPECT_EQ(line[i], static_cast<float>(want)) << i << " of " << count;
    }
  }
}

// The kernel computes elements in vectors or GPU threads, the reference one after the other.
TEST(Draw, BitsAreTheSameOnEveryCpuAndGpu) {
  const CounterRandom random(kSeed, kName);
  for (const std::int64_t begin : {std::int64_t{0}, kWord - 20'000, 77 * kWord + 1}) {
    const std::vector<float> normal = drawn({Kind::kNormal, 1.0}, begin, 20'001);
    for (std::size_t i = 0; i < normal.size(); ++i) {
      const auto element = static_cast<std::uint64_t>(begin) + i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(normal[i]),
                std::bit_cast<std::uint32_t>(random.normal(element)))
          << element;
    }
  }
}

TEST(Draw, PartsEqualTheWholeAtAnyAddress) {
  constexpr std::int64_t kCount = 1039;
  for (const Kind kind :
       {Kind::kConstant, Kind::kNormal, Kind::kUniform, Kind::kPositive, Kind::kLinear}) {
    const InitialValues init{kind, 0.7, 0.3};
    const std::vector<float> whole = drawn(init, 0, kCount, kCount);
    for (const std::int64_t begin : {0, 1, 15, 16, 255, 256, 700})
      for (const std::int64_t n : {0, 1, 3, 16, 17, 255, 256, 257, 339}) {
        KernelStream stream;
        const Unaligned unaligned{HostTensor({n})};
        const auto first = whole.begin() + begin;
        draw(stream, {.y = unaligned,
                      .random = {kSeed, kName},
                      .init = init,
                      .begin = begin,
                      .count = kCount});
        const std::vector<double> want(first, first + n);
        EXPECT_EQ(drawn(init, begin, n, kCount), std::vector<float>(first, first + n))
            << static_cast<int>(kind) << ", " << begin << " + " << n;
        EXPECT_EQ(unaligned.doubles(), want)
            << static_cast<int>(kind) << ", " << begin << " + " << n;
      }
  }
}

TEST(Draw, SplitsWhatItDraws) {
  for (const InitialValues& init :
       {InitialValues{Kind::kNormal, 0.3}, InitialValues{Kind::kUniform, 0.3},
        InitialValues{Kind::kPositive, 0.3}, InitialValues{Kind::kLinear, 0.3, 0.1},
        InitialValues{Kind::kConstant, 0.3}})
    for (const std::int64_t n : {1, 7, 1000}) {
      const SplitTensor got{HostTensor({n})};
      KernelStream stream;
      draw(stream, {.y = got.lower,
                    .upper = got.upper,
                    .random = {kSeed, kName},
                    .init = init,
                    .begin = 5,
                    .count = 2000});
      std::vector<float> want = drawn(init, 5, n, 2000);
      for (float& value : want)
        value = split_and_joined(value);
      const HostTensor joined = got.joined();
      EXPECT_EQ(std::vector<float>(joined.values().begin(), joined.values().end()), want);
    }
}

TEST(Draw, OtherSeedsNamesAndElementsGiveOtherValues) {
  for (const Kind kind : kRandom) {
    const InitialValues init{kind, 1.0};
    const std::vector<float> values = drawn(init, 0, 100);
    const std::array others = {drawn(init, 0, 100, 1, kSeed + 1),
                               drawn(init, 0, 100, 1, kSeed + (std::uint64_t{1} << 32)),
                               drawn(init, 0, 100, 1, kSeed, "lm_head.weight"),
                               drawn(init, 0, 100, 1, kSeed, ""),
                               drawn(init, 100, 100),
                               drawn(init, kWord, 100),
                               drawn(init, 2 * kWord, 100)};
    for (std::size_t i = 0; i < others.size(); ++i) {
      int equal = 0;
      for (std::size_t j = 0; j < values.size(); ++j)
        equal += values[j] == others[i][j] ? 1 : 0;
      EXPECT_LE(equal, 1) << static_cast<int>(kind) << ", other " << i;
    }
  }
}

// The mean may be off by six standard deviations, each of which is sqrt(variance / n).
void expect_mean(const std::vector<double>& of, double mean, double variance,
                 const std::string& what) {
  double sum = 0;
  for (const double x : of)
    sum += x;
  const auto n = static_cast<double>(of.size());
  EXPECT_NEAR(sum / n, mean, 6 * std::sqrt(variance / n)) << what;
}

TEST(Draw, HasTheMomentsOfItsDistributionAndUncorrelatedNeighbours) {
  constexpr std::int64_t kDraws = 50'000;
  const auto power = [](const std::vector<float>& values, int n) {
    std::vector<double> out(values.size());
    std::ranges::transform(values, out.begin(), [n](float x) { return std::pow(double{x}, n); });
    return out;
  };
  // Mean and variance of x^n.
  const std::vector<float> normal = drawn({Kind::kNormal, 1.0}, kWord - 100, kDraws);
  expect_mean(power(normal, 1), 0, 1, "normal");
  expect_mean(power(normal, 2), 1, 2, "normal, squares");
  expect_mean(power(normal, 3), 0, 15, "normal, cubes");
  expect_mean(power(normal, 4), 3, 96, "normal, fourth powers");
  const std::vector<float> uniform = drawn({Kind::kUniform, 1.0}, kWord - 100, kDraws);
  expect_mean(power(uniform, 1), 0, 1.0 / 3, "uniform");
  expect_mean(power(uniform, 2), 1.0 / 3, 1.0 / 5 - 1.0 / 9, "uniform, squares");
  const std::vector<float> positive = drawn({Kind::kPositive, 1.0}, kWord - 100, kDraws);
  expect_mean(power(positive, 1), 0.5, 1.0 / 12, "positive");
  expect_mean(power(positive, 2), 1.0 / 3, 1.0 / 5 - 1.0 / 9, "positive, squares");
  for (const std::size_t apart : {1U, 4U, 16U, 256U}) {
    std::vector<double> products;
    for (std::size_t i = apart; i < normal.size(); ++i)
      products.push_back(double{normal[i]} * double{normal[i - apart]});
    expect_mean(products, 0, 1, "normal, neighbours " + std::to_string(apart));
  }
}

// Compares FNV-1a hashes of the bits of 5000 elements, so that runs stay reproducible.
TEST(Draw, NeverChanges) {
  const auto hash = [](const InitialValues& init) {
    std::uint64_t out = 0xCBF29CE484222325U;
    for (const float x : drawn(init, kWord - 2500, 5000, 2 * kWord))
      out = (out ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001B3U;
    return out;
  };
  EXPECT_EQ(hash({Kind::kConstant, 0.2}), 8874140122626241917U);
  EXPECT_EQ(hash({Kind::kNormal, 0.8}), 12271277467076862230U);
  EXPECT_EQ(hash({Kind::kUniform, 0.0625}), 9594485797474399787U);
  EXPECT_EQ(hash({Kind::kPositive, 0.02}), 2917740160217977760U);
  EXPECT_EQ(hash({Kind::kLinear, 1.15, -0.1}), 7345848434046121341U);
}

TEST(Draw, RefusesWhatItCannotDraw) {
  KernelStream stream;
  const HostTensor y({8});
  const CounterRandom random(kSeed, kName);
  const auto refusal = [&](const DrawArgs& args) {
    return message_of<Error>([&] { draw(stream, args); });
  };
  EXPECT_THAT(refusal({.y = HostTensor({8}, DType::kBF16), .random = random, .init = {}}),
              HasSubstr("draw: y is bf16, expected fp32"));
  EXPECT_THAT(refusal({.y = y, .random = random, .init = {}, .begin = -1}),
              HasSubstr("draw: begin is negative"));
  EXPECT_THAT(
      refusal(
          {.y = y, .random = random, .init = {Kind::kLinear, 1.0, 1.0}, .begin = 3, .count = 10}),
      HasSubstr("draw: y ends beyond the tensor"));
}

}  // namespace
}  // namespace muo::test
