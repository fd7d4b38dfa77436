#include "kit/report/decimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace muo::kit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::int64_t> steps(std::size_t n) {
  std::vector<std::int64_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<double> noise(std::size_t n) {
  std::mt19937_64 engine(7);
  std::vector<double> out(n);
  for (double& y : out)
    y = std::uniform_real_distribution<double>(-1, 1)(engine);
  return out;
}

TEST(Decimate, LeavesFewPointsAsTheyAre) {
  const std::vector<std::int64_t> x = {3, 5, 9, 10};
  const std::vector<double> y = {1, kNan, -2, 4};
  const DrawnCurve curve = decimate(x, y, 4);
  EXPECT_EQ(curve.points.x, x);
  EXPECT_TRUE(std::isnan(curve.points.y[1]));
  EXPECT_EQ(curve.points.y[2], -2);
  EXPECT_TRUE(curve.means.x.empty());
  EXPECT_TRUE(decimate({}, {}, 4).points.x.empty());
}

TEST(Decimate, LosesNoSpikeOfAMillionPoints) {
  constexpr std::size_t kN = 1'000'000, kMax = 1000;
  const std::vector<std::int64_t> x = steps(kN);
  std::vector<double> y = noise(kN);
  for (const std::size_t spike : {1UL, 123'457UL, 999'998UL})
    y[spike] = 100 + static_cast<double>(spike);
  y[500'001] = -77;
  const DrawnCurve curve = decimate(x, y, kMax);
  EXPECT_LE(curve.points.x.size(), kMax);
  EXPECT_EQ(curve.points.x.front(), 0);
  EXPECT_EQ(curve.points.x.back(), 999'999);
  EXPECT_EQ(curve.points.y.front(), y.front());
  EXPECT_EQ(curve.points.y.back(), y.back());
  for (const std::size_t spike : {1UL, 123'457UL, 500'001UL, 999'998UL}) {
    const auto at = std::ranges::find(curve.points.x, static_cast<std::int64_t>(spike));
    ASSERT_NE(at, curve.points.x.end()) << spike;
    EXPECT_EQ(curve.points.y[static_cast<std::size_t>(at - curve.points.x.begin())], y[spike]);
  }
  EXPECT_TRUE(std::ranges::is_sorted(curve.points.x, std::less_equal<>()));
}

TEST(Decimate, OneBucketKeepsFirstLastAndExtremes) {
  for (const std::size_t n : {5UL, 13UL, 100UL, 1001UL}) {
    const std::vector<double> y = noise(n);
    const DrawnCurve curve = decimate(steps(n), y, 4);
    const auto [low, high] = std::minmax_element(y.begin() + 1, y.end() - 1);
    EXPECT_EQ(curve.points.y.size(), 4U) << n;
    EXPECT_THAT(curve.points.y, testing::Contains(*low)) << n;
    EXPECT_THAT(curve.points.y, testing::Contains(*high)) << n;
  }
}

TEST(Decimate, KeepsAGapOfEachBucketAndBucketsThatAreAllGap) {
  std::vector<double> y(100, 1.0);
  y[42] = kNan;
  std::fill(y.begin() + 60, y.begin() + 80, std::numeric_limits<double>::infinity());
  const DrawnCurve curve = decimate(steps(100), y, 22);
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 0; i < curve.points.x.size(); ++i)
    if (!std::isfinite(curve.points.y[i])) gaps.push_back(curve.points.x[i]);
  EXPECT_THAT(gaps, testing::Contains(42));
  EXPECT_THAT(gaps, testing::Contains(testing::AllOf(testing::Ge(60), testing::Lt(80))));
  for (const double mean : curve.means.y)
    EXPECT_EQ(mean, 1.0);
}

TEST(Decimate, MeansAreThoseOfTheirBuckets) {
  constexpr std::size_t kN = 1002;
  std::vector<double> y(kN, 2.0);
  y[500] = 1002;
  const DrawnCurve curve = decimate(steps(kN), y, 22);  // 10 buckets of 100
  ASSERT_EQ(curve.means.y.size(), 10U);
  EXPECT_EQ(curve.means.y[0], 2.0);
  EXPECT_EQ(curve.means.y[4], 2.0 + 1000.0 / 100);
}

TEST(StepTimeHistogram, CountEveryStepOnceAndNameTheSlow) {
  std::vector<double> ms(1000, 10.0);
  for (std::size_t i = 0; i < ms.size(); ++i)
    ms[i] += static_cast<double>(i % 10) / 10;
  ms[3] = 500;
  ms[700] = 40;
  ms[5] = kNan;
  ms[6] = 0;
  const StepTimeHistogram times = step_time_histogram(steps(1000), ms, 20, 50);
  EXPECT_EQ(std::accumulate(times.counts.begin(), times.counts.end(), std::int64_t{0}), 998);
  ASSERT_EQ(times.edges.size(), 21U);
  EXPECT_EQ(times.counts.back(), 1);
  EXPECT_NEAR(times.median, 10.5, 0.1);
  EXPECT_EQ(times.outliers, 2);
  EXPECT_THAT(times.slow, testing::ElementsAre(testing::Pair(3, 500.0), testing::Pair(700, 40.0)));
  const StepTimeHistogram one = step_time_histogram(steps(1000), ms, 20, 1);
  EXPECT_EQ(one.outliers, 2);
  EXPECT_THAT(one.slow, testing::ElementsAre(testing::Pair(3, 500.0)));
}

TEST(StepTimeHistogram, OfEqualTimesAreOneBinAndOfNoneNothing) {
  const StepTimeHistogram equal =
      step_time_histogram(steps(5), std::vector<double>(5, 3.0), 20, 50);
  EXPECT_THAT(equal.counts, testing::ElementsAre(5));
  EXPECT_EQ(equal.outliers, 0);
  EXPECT_TRUE(step_time_histogram({}, {}, 20, 50).counts.empty());
}

}  // namespace
}  // namespace muo::kit
