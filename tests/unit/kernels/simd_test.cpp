#include "kernels/host/simd.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using simd::F32;
using simd::FirstLanes;
using simd::kLanes;

// Every `stride`-th float of [low, high]; both ends must have the same sign.
std::vector<float> floats_between(float low, float high, std::uint32_t stride) {
  const auto a = std::bit_cast<std::uint32_t>(low);
  const auto b = std::bit_cast<std::uint32_t>(high);
  std::vector<float> out;
  for (std::uint32_t bits = std::min(a, b); bits <= std::max(a, b); bits += stride)
    out.push_back(std::bit_cast<float>(bits));
  return out;
}

template <class Vector, class Reference>
double worst_ulp(const std::vector<float>& inputs, Vector vector, Reference reference) {
  double worst = 0;
  simd::for_lanes(static_cast<std::int64_t>(inputs.size()), [&](std::int64_t i, auto lanes) {
    std::array<float, kLanes> out{};
    simd::store(out.data(), vector(simd::load(inputs.data() + i, lanes)), lanes);
    for (std::size_t j = 0; j < out.size() && static_cast<std::size_t>(i) + j < inputs.size(); ++j)
      worst = std::max(
          worst,
          test::ulp_error(out[j], reference(double{inputs[static_cast<std::size_t>(i) + j]})));
  });
  return worst;
}

template <class Vector>
float one(Vector vector, float x) {
  std::array<float, kLanes> out{};
  simd::store(out.data(), vector(simd::broadcast(x)));
  return out[7];
}

TEST(SimdExp, IsWithinOneUlpOverTheNormalRange) {
  const auto reference = [](double x) { return std::exp(x); };
  const auto vector = [](F32 x) { return simd::exp(x); };
  EXPECT_LE(worst_ulp(floats_between(1e-8F, 88.7F, 1009), vector, reference), 1.0);
  EXPECT_LE(worst_ulp(floats_between(-1e-8F, -87.3F, 1009), vector, reference), 1.0);
}

TEST(SimdExp, HandlesTheEnds) {
  const auto exp = [](F32 x) { return simd::exp(x); };
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(one(exp, 0.0F), 1.0F);
  EXPECT_EQ(one(exp, -infinity), 0.0F);
  EXPECT_EQ(one(exp, -1000.0F), 0.0F);
  EXPECT_EQ(one(exp, infinity), infinity);
  EXPECT_EQ(one(exp, 88.8F), infinity);
  EXPECT_TRUE(std::isnan(one(exp, std::numeric_limits<float>::quiet_NaN())));
}

TEST(SimdExp2, IsWithinOneUlpOverTheNormalRange) {
  const auto reference = [](double x) { return std::exp2(x); };
  const auto vector = [](F32 x) { return simd::exp2(x); };
  EXPECT_LE(worst_ulp(floats_between(1e-8F, 127.0F, 1009), vector, reference), 1.0);
  EXPECT_LE(worst_ulp(floats_between(-1e-8F, -126.0F, 1009), vector, reference), 1.0);
}

TEST(SimdExp2, HandlesTheEnds) {
  const auto exp2 = [](F32 x) { return simd::exp2(x); };
  EXPECT_EQ(one(exp2, 0.0F), 1.0F);
  EXPECT_EQ(one(exp2, -126.5F), 0.0F);
  EXPECT_EQ(one(exp2, -1e30F), 0.0F);
  EXPECT_EQ(one(exp2, -std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_TRUE(std::isnan(one(exp2, std::numeric_limits<float>::quiet_NaN())));
}

TEST(SimdTanh, IsWithinTwoUlp) {
  const auto reference = [](double x) { return std::tanh(x); };
  const auto vector = [](F32 x) { return simd::tanh(x); };
  EXPECT_LE(worst_ulp(floats_between(1e-30F, 100.0F, 1511), vector, reference), 2.0);
  EXPECT_LE(worst_ulp(floats_between(-1e-30F, -100.0F, 1511), vector, reference), 2.0);
}

TEST(SimdTanh, HandlesTheEnds) {
  const auto tanh = [](F32 x) { return simd::tanh(x); };
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(one(tanh, infinity), 1.0F);
  EXPECT_EQ(one(tanh, -infinity), -1.0F);
  EXPECT_TRUE(std::signbit(one(tanh, -0.0F)));
  EXPECT_TRUE(std::isnan(one(tanh, std::numeric_limits<float>::quiet_NaN())));
}

TEST(SimdLanes, PartialLoadsAndStoresTouchOnlyTheirLanes) {
  for (std::int64_t count = 1; count < kLanes; ++count) {
    const test::HostTensor in = test::random_tensor({count}, "in");  // of exact size, for ASan
    std::array<float, kLanes> out{};
    out.fill(-1.0F);
    const F32 loaded = simd::load(in.values().data(), FirstLanes{count});
    simd::store(out.data(), loaded, FirstLanes{count});
    std::array<float, kLanes> whole{};
    simd::store(whole.data(), loaded);
    std::array<float, kLanes> kept{};
    simd::store(kept.data(), simd::keep(loaded, FirstLanes{count}, simd::broadcast(3.0F)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool inside = static_cast<std::int64_t>(i) < count;
      EXPECT_EQ(out[i], inside ? in.values()[i] : -1.0F);
      EXPECT_EQ(whole[i], inside ? in.values()[i] : 0.0F);
      EXPECT_EQ(kept[i], inside ? in.values()[i] : 3.0F);
    }
  }
}

TEST(SimdLanes, ReductionsSeeEveryLaneOnce) {
  std::array<float, kLanes> powers{};
  for (std::size_t i = 0; i < powers.size(); ++i)
    powers[i] = std::ldexp(1.0F, static_cast<int>(i));
  const F32 v = simd::load(powers.data());
  EXPECT_EQ(simd::sum(v), 65535.0F);
  EXPECT_EQ(simd::sum(simd::widen(v)), 65535.0);
  EXPECT_EQ(simd::sum(simd::fma(simd::widen(v), simd::widen(v), simd::zero_f64())),
            (std::ldexp(1.0, 32) - 1.0) / 3.0);
  for (std::size_t i = 0; i < powers.size(); ++i) {
    std::array<float, kLanes> peak{};
    peak.fill(-2.0F);
    peak[i] = -1.0F;
    EXPECT_EQ(simd::max_of(simd::load(peak.data())), -1.0F);
  }
}

TEST(SimdLanes, LoopCoversEveryElementOnce) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 48, 63}) {
    std::vector<int> seen(static_cast<std::size_t>(n));
    simd::for_lanes(n, [&](std::int64_t i, auto lanes) {
      std::int64_t count = kLanes;
      if constexpr (std::is_same_v<decltype(lanes), FirstLanes>) count = lanes.count;
      for (std::int64_t j = i; j < i + count; ++j)
        ++seen.at(static_cast<std::size_t>(j));
    });
    EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

}  // namespace
}  // namespace muo
