#include "kernels/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Guard {
  HostTensor scalars{{static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes};
  HostTensor statistics{{static_cast<std::int64_t>(sizeof(LossStatistics))}, DType::kBytes};
  HostTensor hyper{{static_cast<std::int64_t>(sizeof(HyperParameters))}, DType::kBytes};
  HostTensor totals{{kRankIndices + 2}, DType::kF64};
  KernelStream stream;

  explicit Guard(const HyperParameters& h = HyperParameters()) {
    *hyper.tensor().as_struct<HyperParameters>() = h;
    *statistics.tensor().as_struct<LossStatistics>() = LossStatistics{};
    s() = StepScalars{};
  }
  [[nodiscard]] StepScalars& s() const { return *scalars.tensor().as_struct<StepScalars>(); }
  [[nodiscard]] const LossStatistics& seen() const {
    return *statistics.tensor().as_struct<LossStatistics>();
  }
  void decide_on(double loss, double squares, double found = 0) {
    const double values[] = {loss, squares, 0.0, found};
    std::copy_n(values, 4, totals.tensor().as<double>());
    agree_commit(stream,
                 {.scalars = scalars, .statistics = statistics, .hyper = hyper, .totals = totals});
  }
};

TEST(AgreeCommit, OnlyFiniteTotalsCommit) {
  Guard guard;
  const double largest = double{std::numeric_limits<float>::max()};
  const double rows[][4] = {{2.5, 1, 0, 1},
                            {kNan, 1, 0, 0},
                            {1, kInfinity, 0, 0},
                            {1, kNan, 0, 0},
                            {-kInfinity, 1, 0, 0},
                            {1, largest, 0, 1},
                            {1, std::nextafter(largest, kInfinity), 0, 0},
                            {2.5, 1, kNoIndex - 7, 0}};  // a rank has found a non-finite value
  for (const auto& row : rows) {
    guard.decide_on(row[0], row[1], row[2]);
    const int commits = row[3] > 0 ? 1 : 0;
    EXPECT_EQ(guard.s().commit, commits) << row[0] << " " << row[1] << " " << row[2];
    EXPECT_EQ(guard.s().verdict, commits == 1 ? Verdict::kOrdinary : Verdict::kNotFinite);
  }
  EXPECT_EQ(guard.seen().loss.count, 2) << "non-finite steps must not enter the statistics";
}

std::vector<double> noise(const char* name, double mean, double spread, int count) {
  const CounterRandom random(3, name);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    values.push_back(mean + spread * double{random.normal(static_cast<std::uint64_t>(i))});
  return values;
}

TEST(AgreeCommit, OutliersAreThoseFarAboveTheMeanOfAFullWindow) {
  HyperParameters hyper;
  hyper.outlier_deviations = 6;
  for (const std::int64_t skips : {0, 1}) {
    hyper.skip_outliers = skips;
    Guard guard(hyper);
    const std::vector<double> losses = noise("loss", 3, 0.1, 128);
    const std::vector<double> norms = noise("norm", 0.5, 0.05, 128);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double spike = i == 100 ? 50 : 0;  // no outlier, because the window is not full
      guard.decide_on(losses[i] + spike, norms[i] * norms[i]);
      ASSERT_EQ(guard.s().verdict, Verdict::kOrdinary) << i;
      ASSERT_EQ(guard.s().loss_deviations, 0) << i;
    }
    // The reference makes two passes over the same numbers.
    std::vector<double> seen = losses;
    seen[100] += 50;
    double mean = 0;
    for (const double v : seen)
      mean += v / 128;
    double variance = 0;
    for (const double v : seen)
      variance += (v - mean) * (v - mean) / 128;
    EXPECT_NEAR(guard.seen().loss.mean, mean, 1e-12 * mean);
    EXPECT_NEAR(guard.seen().loss.variance, variance, 1e-10 * variance);
    const auto expect = [&](double loss, double norm, Verdict verdict) {
      const StepScalars& s = guard.s();
      guard.decide_on(loss, norm * norm);
      EXPECT_EQ(s.verdict, verdict) << loss << " " << norm;
      EXPECT_EQ(s.commit, verdict == Verdict::kOutlier && skips == 1 ? 0 : 1);
    };
    const double at = mean + 5.5 * std::sqrt(variance);
    expect(at, 0.5, Verdict::kOrdinary);
    EXPECT_NEAR(guard.s().loss_deviations, 5.5, 1e-5);
    expect(-100, 0.5, Verdict::kOrdinary);  // low values are not outliers
    expect(1000, 0.5, Verdict::kOutlier);
    expect(3, 2, Verdict::kOutlier);
    EXPECT_GT(guard.s().norm_deviations, 6);
    expect(3, 0.5, Verdict::kOrdinary);
    // A new level counts as an outlier only for some steps.
    for (int i = 0; i < 20; ++i)
      guard.decide_on(1000 + i % 2, 0.25);
    EXPECT_EQ(guard.s().verdict, Verdict::kOrdinary);
  }
}

TEST(AgreeCommit, GradientsAreScaledDownToTheMaximumNorm) {
  HyperParameters hyper;
  hyper.max_grad_norm = 0.5;
  Guard clipped(hyper);
  const double rows[][2] = {{0.4, 1}, {0.5, 1}, {2, 0.25}, {3, 0.5 / 3}};
  for (const auto& row : rows) {
    clipped.decide_on(1, row[0] * row[0]);
    EXPECT_EQ(clipped.s().gradient_scale, static_cast<float>(row[1])) << row[0];
  }
  Guard free;
  free.decide_on(1, 1e30);
  EXPECT_EQ(free.s().gradient_scale, 1);
}

TEST(NoteNonfinite, KeepsTheLowestIndex) {
  KernelStream stream;
  constexpr float kBad = std::numeric_limits<float>::quiet_NaN();
  const HostTensor total({1}, DType::kF64);
  const auto found = [&] { return kNoIndex - total.values<double>()[0]; };
  for (const std::int64_t n : {1, 7, 1003, 100003}) {
    total.values<double>()[0] = 0;
    const HostTensor x = random_tensor({n}, "x");
    note_nonfinite(stream, {.found = total.tensor().row(0), .x = x, .base = 5});
    EXPECT_EQ(total.values<double>()[0], 0) << n;
    for (const std::int64_t bad : {n - 1, n / 2, n / 3}) {
      x.values()[static_cast<std::size_t>(bad)] = kBad;
      note_nonfinite(stream, {.found = total.tensor().row(0), .x = x, .base = 5});
      EXPECT_EQ(found(), 5 + bad) << n;
    }
    note_nonfinite(stream, {.found = total.tensor().row(0), .x = x, .base = 1000});
    EXPECT_EQ(found(), 5 + n / 3) << "a second value, after the first";
  }
  total.values<double>()[0] = 0;
  const HostTensor rows = random_tensor({6}, "rows");
  rows.values()[4] = 2e19F;  // finite, but its square is not
  note_nonfinite(stream, {.found = total.tensor().row(0), .x = rows, .base = 100, .stride = 10});
  EXPECT_EQ(found(), 140);
}

TEST(NoteNonfinite, FindsValuesOfBF16) {
  KernelStream stream;
  const HostTensor total({1}, DType::kF64);
  for (const std::int64_t n : {1, 7, 1003, 100003}) {
    const HostTensor x = random_tensor({n}, "x").rounded(DType::kBF16);
    const auto note = [&] {
      total.values<double>()[0] = 0;
      note_nonfinite(stream, {.found = total.tensor().row(0), .x = x, .base = 5, .stride = 2});
      return total.values<double>()[0];
    };
    EXPECT_EQ(note(), 0) << n;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), 2e19F}) {  // 2e19^2 is infinite
      x.values<BF16>()[static_cast<std::size_t>(n / 2)] = to_bf16(bad);
      const std::int64_t index = 5 + 2 * (n / 2);
      EXPECT_EQ(kNoIndex - note(), index) << n;
    }
  }
  EXPECT_THAT(message_of<Error>([&] {
                note_nonfinite(stream,
                               {.found = total.tensor().row(0), .x = HostTensor({3}, DType::kI32)});
              }),
              ::testing::HasSubstr("note_nonfinite: x is int32, expected fp32"));
}

TEST(NoteNonfinite, LooksOnlyWhereTheSquaresAreNotFinite) {
  KernelStream stream;
  const HostTensor total({1}, DType::kF64);
  const HostTensor squares({1}, DType::kF64);
  const HostTensor x = random_tensor({1003}, "x");
  x.values()[17] = -std::numeric_limits<float>::infinity();
  const auto note = [&](double sum) {
    squares.values<double>()[0] = sum;
    total.values<double>()[0] = 0;
    note_nonfinite(stream,
                   {.found = total.tensor().row(0), .x = x, .squares = squares.tensor().row(0)});
    return total.values<double>()[0];
  };
  EXPECT_EQ(note(12.5), 0);
  for (const double sum : {kInfinity, kNan, 1e39})
    EXPECT_EQ(kNoIndex - note(sum), 17) << sum;
}

}  // namespace
}  // namespace muo::test
