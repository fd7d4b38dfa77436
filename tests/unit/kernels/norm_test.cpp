#include "kernels/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

// One row in doubles; also used for f(x) = sum_i y_i weight_i in finite differences.
double reference_rstd(const std::vector<double>& x, double eps) {
  double squares = 0;
  for (const double v : x)
    squares += v * v;
  return 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
}

std::vector<double> row_of(const std::vector<double>& all, std::int64_t row, std::int64_t c) {
  const auto begin = all.begin() + row * c;
  return {begin, begin + c};
}

struct Size {
  std::int64_t n, c;
};
const std::vector<Size> kSizes = {{1, 1}, {3, 7}, {5, 64}, {2, 385}, {4, 1000}, {0, 16}};

TEST(RmsNorm, AgreesWithFloat64) {
  test::KernelStream stream;
  for (const auto& [n, c] : kSizes) {
    const HostTensor x = random_tensor({n, c}, "x", 3.0F);
    const HostTensor y({n, c});
    const HostTensor rstd({n});
    rms_norm(stream, {.y = y, .rstd = rstd, .x = x});
    std::vector<double> want_y;
    std::vector<double> want_rstd;
    for (std::int64_t row = 0; row < n; ++row) {
      const std::vector<double> values = row_of(x.doubles(), row, c);
      want_rstd.push_back(reference_rstd(values, double{kRmsNormEps}));
      for (const double v : values)
        want_y.push_back(v * want_rstd.back());
    }
    // Roundings of the sum of squares, then of mean, eps, root, reciprocal and product.
    const double tolerance = test::worst_case(c + 5);
    EXPECT_LE(test::relative_error<float>(rstd.values(), want_rstd), tolerance) << n << "x" << c;
    EXPECT_LE(test::relative_error<float>(y.values(), want_y), tolerance) << n << "x" << c;
  }
}

TEST(RmsNorm, KeepsAZeroRowZeroThroughEps) {
  test::KernelStream stream;
  const HostTensor x({2, 40});
  const HostTensor rstd({2});
  rms_norm(stream, {.y = x, .rstd = rstd, .x = x, .eps = 0.25F});
  EXPECT_THAT(rstd.values(), ::testing::Each(2.0F));
  EXPECT_THAT(x.values(), ::testing::Each(0.0F));
}

TEST(RmsNorm, InPlaceGivesTheSameBits) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({5, 77}, "x");
  const HostTensor apart({5, 77});
  const HostTensor in_place = x.copy();
  const HostTensor rstd({5});
  rms_norm(stream, {.y = apart, .rstd = rstd, .x = x});
  rms_norm(stream, {.y = in_place, .rstd = rstd, .x = in_place});
  EXPECT_TRUE(std::ranges::equal(in_place.values(), apart.values()));
}

TEST(RmsNorm, PropagatesNaN) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({1, 33}, "x");
  x.values()[20] = std::numeric_limits<float>::quiet_NaN();
  const HostTensor rstd({1});
  rms_norm(stream, {.y = x, .rstd = rstd, .x = x});
  EXPECT_TRUE(std::isnan(x.values()[0]));
}

struct BackwardCase {
  HostTensor x, y, rstd, dy;
};

BackwardCase backward_case(std::int64_t n, std::int64_t c, float eps) {
  test::KernelStream stream;
  BackwardCase out{random_tensor({n, c}, "x", 0.5F), HostTensor({n, c}), HostTensor({n}),
                   random_tensor({n, c}, "dy")};
  rms_norm(stream, {.y = out.y, .rstd = out.rstd, .x = out.x, .eps = eps});
  return out;
}

// Computed from x in float64, independently of y and rstd, which the kernel reads.
std::vector<double> reference_dx(const BackwardCase& s, double eps) {
  const std::int64_t n = s.x.tensor().shape[0];
  const std::int64_t c = s.x.tensor().shape[1];
  std::vector<double> out;
  for (std::int64_t row = 0; row < n; ++row) {
    const std::vector<double> x = row_of(s.x.doubles(), row, c);
    const std::vector<double> dy = row_of(s.dy.doubles(), row, c);
    const double rstd = reference_rstd(x, eps);
    double dot = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      dot += dy[i] * x[i];
    for (std::size_t i = 0; i < x.size(); ++i)
      out.push_back(rstd * dy[i] - x[i] * rstd * rstd * rstd * dot / static_cast<double>(c));
  }
  return out;
}

TEST(RmsNormBackward, ReferenceAgreesWithFiniteDifferences) {
  constexpr double kEps = 0.125;
  const BackwardCase s = backward_case(1, 9, float{kEps});
  const std::vector<double> dy = s.dy.doubles();
  const auto f = [&](const std::vector<double>& x) {
    const double rstd = reference_rstd(x, kEps);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += x[i] * rstd * dy[i];
    return sum;
  };
  // Central differences: a truncation error of order h^2, and cancellation of order u / h.
  const double h = std::cbrt(test::kUnitF64);
  EXPECT_LE(
      test::relative_error(test::central_differences(f, s.x.doubles(), h), reference_dx(s, kEps)),
      100 * h * h);
}

TEST(RmsNormBackward, AgreesWithFloat64AndAccumulates) {
  test::KernelStream stream;
  for (const float eps : {kRmsNormEps, 0.125F})
    for (const auto& [n, c] : kSizes) {
      const BackwardCase s = backward_case(n, c, eps);
      std::vector<double> want = reference_dx(s, double{eps});
      // Relative to |rstd dy|, because the two terms cancel partly and, for one column, completely.
      double magnitude = 0;
      for (std::int64_t row = 0; row < n; ++row)
        for (const double v : row_of(s.dy.doubles(), row, c))
          magnitude += std::pow(v * double{s.rstd.values()[static_cast<std::size_t>(row)]}, 2);
      const double tolerance = test::worst_case(2 * c + 10) * std::sqrt(magnitude);
      const HostTensor dx({n, c});
      std::ranges::fill(dx.values(), std::numeric_limits<float>::quiet_NaN());
      rms_norm_backward(stream, {.dx = dx, .dy = s.dy, .y = s.y, .rstd = s.rstd});
      EXPECT_LE(test::distance<float>(dx.values(), want), tolerance) << n << "x" << c;

      const HostTensor sum = random_tensor({n, c}, "old");
      const std::vector<double> old = sum.doubles();
      rms_norm_backward(stream,
                        {.dx = sum, .dy = s.dy, .y = s.y, .rstd = s.rstd, .accumulate = true});
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] += old[i];
      EXPECT_LE(test::distance<float>(sum.values(), want),
                tolerance + test::kUnitF32 * test::frobenius<double>(want))
          << n << "x" << c;
    }
}

TEST(RmsNormBackward, InPlaceGivesTheSameBits) {
  test::KernelStream stream;
  const BackwardCase s = backward_case(3, 50, kRmsNormEps);
  const HostTensor dx({3, 50});
  rms_norm_backward(stream, {.dx = dx, .dy = s.dy, .y = s.y, .rstd = s.rstd});
  rms_norm_backward(stream, {.dx = s.dy, .dy = s.dy, .y = s.y, .rstd = s.rstd});
  EXPECT_TRUE(std::ranges::equal(s.dy.values(), dx.values()));
}

// Forward and backward of bf16 tensors. The reference uses the rounded inputs.
TEST(RmsNormBF16, AgreesWithFloat64BothWays) {
  test::KernelStream stream;
  for (const auto& [n, c] : kSizes) {
    BackwardCase s{random_tensor({n, c}, "x").rounded(DType::kBF16),
                   HostTensor({n, c}, DType::kBF16), HostTensor({n}),
                   random_tensor({n, c}, "dy").rounded(DType::kBF16)};
    rms_norm(stream, {.y = s.y, .rstd = s.rstd, .x = s.x});
    std::vector<double> want;
    std::vector<double> want_rstd;
    for (std::int64_t row = 0; row < n; ++row) {
      const std::vector<double> values = row_of(s.x.doubles(), row, c);
      want_rstd.push_back(reference_rstd(values, double{kRmsNormEps}));
      for (const double v : values)
        want.push_back(v * want_rstd.back());
    }
    const double in_fp32 = test::worst_case(c + 5);
    const double stored = test::kUnitBF16;
    EXPECT_LE(test::relative_error<float>(s.rstd.values(), want_rstd), in_fp32);
    EXPECT_LE(test::relative_error(s.y.doubles(), want), in_fp32 + stored * (1 + in_fp32));

    // The kernel reads the rounded y. dot(dy, y) / c changes by at most |dy| |y| stored / c,
    // which is stored |dy| / sqrt(c) because |y| <= sqrt(c), and is multiplied by y; y itself
    // changes by `stored`.
    double magnitude = 0;
    for (std::int64_t row = 0; row < n; ++row)
      for (const double v : row_of(s.dy.doubles(), row, c))
        magnitude += std::pow(v * want_rstd[static_cast<std::size_t>(row)], 2);
    const double tolerance =
        (test::worst_case(2 * c + 10) + 2 * stored) * (1 + stored) * std::sqrt(magnitude);
    want = reference_dx(s, double{kRmsNormEps});
    const HostTensor sum = random_tensor({n, c}, "old").rounded(DType::kBF16);
    const std::vector<double> old = sum.doubles();
    rms_norm_backward(stream,
                      {.dx = sum, .dy = s.dy, .y = s.y, .rstd = s.rstd, .accumulate = true});
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] += old[i];
    EXPECT_LE(test::distance<double>(sum.doubles(), want),
              tolerance + stored * test::frobenius<double>(want))
        << n << "x" << c;
    rms_norm_backward(stream, {.dx = s.dy, .dy = s.dy, .y = s.y, .rstd = s.rstd});
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] -= old[i];
    EXPECT_LE(test::distance<double>(s.dy.doubles(), want),
              tolerance + stored * test::frobenius<double>(want));
  }
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): a HostTensor frees its memory

TEST(RmsNorm, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor x({3, 4});
  const HostTensor other({4, 3});
  const HostTensor rstd({3});
  EXPECT_THAT(
      test::message_of<Error>([&] { rms_norm(stream, {.y = other, .rstd = rstd, .x = x}); }),
      AllOf(HasSubstr("rms_norm: y is (4, 3)"), HasSubstr("expected (3, 4)")));
  const HostTensor half({3, 4}, DType::kBF16);
  EXPECT_THAT(test::message_of<Error>([&] { rms_norm(stream, {.y = half, .rstd = rstd, .x = x}); }),
              HasSubstr("rms_norm: y is bf16, expected fp32"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { rms_norm(stream, {.y = x, .rstd = x.tensor().row(0), .x = x}); }),
              HasSubstr("rms_norm: rstd is (4)"));
  const HostTensor memory({4, 4});
  EXPECT_THAT(
      test::message_of<Error>([&] {
        rms_norm(stream,
                 {.y = memory.tensor().rows(0, 3), .rstd = rstd, .x = memory.tensor().rows(1, 4)});
      }),
      HasSubstr("rms_norm: y overlaps x"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { rms_norm_backward(stream, {.dx = x, .dy = other, .y = x, .rstd = rstd}); }),
              HasSubstr("rms_norm_backward: dy is (4, 3)"));
  EXPECT_THAT(test::message_of<Error>([&] {
                rms_norm_backward(
                    stream, {.dx = x, .dy = memory.tensor().rows(0, 3), .y = x, .rstd = rstd});
              }),
              HasSubstr("rms_norm_backward: dx overlaps y"));
}

}  // namespace
}  // namespace muo
