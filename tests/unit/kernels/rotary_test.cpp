#include "kernels/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
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

struct Size {
  std::int64_t b, t, heads, h;
  std::int64_t first_position;
};
const std::vector<Size> kSizes = {{1, 1, 1, 2, 0},  {2, 3, 2, 10, 4},  {1, 5, 3, 64, 0},
                                  {2, 4, 1, 70, 1}, {1, 2, 2, 128, 0}, {0, 3, 2, 8, 0}};

// Rotates one row by minus the angle, which is computed from position and base, and normalises it.
std::vector<double> reference_row(const std::vector<double>& x, std::int64_t position, double scale,
                                  double eps, double* rstd = nullptr) {
  const std::size_t half = x.size() / 2;
  std::vector<double> r(x.size());
  double squares = 0;
  for (std::size_t j = 0; j < half; ++j) {
    const double angle =
        static_cast<double>(position) *
        std::exp(-std::log(100000.0) * static_cast<double>(j) / static_cast<double>(half));
    r[j] = x[j] * std::cos(angle) + x[half + j] * std::sin(angle);
    r[half + j] = -x[j] * std::sin(angle) + x[half + j] * std::cos(angle);
    squares += r[j] * r[j] + r[half + j] * r[half + j];
  }
  const double root = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (double& v : r)
    v *= scale * root;
  if (rstd != nullptr) *rstd = root;
  return r;
}

std::vector<double> row_of(const std::vector<double>& all, std::int64_t row, std::int64_t h) {
  const auto begin = all.begin() + row * h;
  return {begin, begin + h};
}

struct Tables {
  HostTensor cos, sin;
};

Tables tables(std::int64_t positions, std::int64_t h, DType dtype = DType::kF32) {
  test::KernelStream stream;
  Tables out{HostTensor({positions, h / 2}, dtype), HostTensor({positions, h / 2}, dtype)};
  rotary_table(stream, {.cos = out.cos, .sin = out.sin});
  return out;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): a HostTensor frees its memory

TEST(RotaryTable, IsRoundedOnceFromDouble) {
  const Tables out = tables(300, 6);
  for (std::size_t p = 0; p < 300; ++p)
    for (std::size_t j = 0; j < 3; ++j) {
      const double angle =
          static_cast<double>(p) * std::pow(100000.0, -2.0 * static_cast<double>(j) / 6.0);
      // Half an ulp of 1, plus the roundings of the angle.
      const double tolerance = test::kUnitF32 + 4 * angle * test::kUnitF64;
      EXPECT_NEAR(double{out.cos.values()[p * 3 + j]}, std::cos(angle), tolerance);
      EXPECT_NEAR(double{out.sin.values()[p * 3 + j]}, std::sin(angle), tolerance);
    }
}

TEST(RotaryNorm, AgreesWithFloat64) {
  test::KernelStream stream;
  for (const Size& s : kSizes)
    for (const float eps : {kRmsNormEps, 0.125F}) {
      constexpr float kScale = 1.25F;
      const Tables table = tables(s.first_position + s.t + 1, s.h);
      const HostTensor x = random_tensor({s.b, s.t, s.heads, s.h}, "x", 2.0F);
      const HostTensor rstd({s.b, s.t, s.heads});
      std::vector<double> want;
      std::vector<double> want_rstd(rstd.values().size());
      for (std::size_t row = 0; row < want_rstd.size(); ++row) {
        const auto signed_row = static_cast<std::int64_t>(row);
        const std::vector<double> r = reference_row(row_of(x.doubles(), signed_row, s.h),
                                                    s.first_position + signed_row / s.heads % s.t,
                                                    double{kScale}, double{eps}, &want_rstd[row]);
        want.insert(want.end(), r.begin(), r.end());
      }
      rotary_norm(stream, {.x = x,
                           .rstd = rstd,
                           .cos = table.cos,
                           .sin = table.sin,
                           .scale = kScale,
                           .eps = eps,
                           .first_position = s.first_position});
      // Roundings of the table, two products and a sum; squares; mean, eps, root, reciprocal,
      // scale and product.
      const double tolerance = test::worst_case(s.h + 10);
      EXPECT_LE(test::relative_error<float>(x.values(), want), tolerance) << s.h;
      EXPECT_LE(test::relative_error<float>(rstd.values(), want_rstd), tolerance) << s.h;
    }
}

TEST(RotaryNorm, PositionsShiftTheStartOfASequence) {
  test::KernelStream stream;
  const std::vector<std::int32_t> at = {5, 0, 2};
  for (const std::int64_t h : {10, 64}) {
    const Tables table = tables(9, h);
    const HostTensor x = random_tensor({3, 2, 3, h}, "x");
    const HostTensor want = x.copy();
    const HostTensor rstd({3, 2, 3});
    const HostTensor positions({3}, at);
    rotary_norm(stream, {.x = x,
                         .rstd = rstd,
                         .cos = table.cos,
                         .sin = table.sin,
                         .first_position = 1,
                         .positions = positions});
    for (std::int64_t row = 0; row < 3; ++row)
      rotary_norm(stream, {.x = want.tensor().rows(row, row + 1),
                           .rstd = rstd.tensor().rows(row, row + 1),
                           .cos = table.cos,
                           .sin = table.sin,
                           .first_position = 1 + at[static_cast<std::size_t>(row)]});
    EXPECT_EQ(x.doubles(), want.doubles()) << h;
  }
}

TEST(RotaryNormBackward, AgreesWithFiniteDifferencesOfFloat64) {
  test::KernelStream stream;
  for (const Size& s : kSizes) {
    constexpr float kScale = 1.25F;
    constexpr float kEps = 0.125F;
    const Tables table = tables(s.t, s.h);
    const HostTensor x = random_tensor({s.b, s.t, s.heads, s.h}, "x");
    const HostTensor dy = random_tensor({s.b, s.t, s.heads, s.h}, "dy");
    const HostTensor rstd({s.b, s.t, s.heads});
    const std::int64_t rows = s.b * s.t * s.heads;
    std::vector<double> want;
    const double h = std::cbrt(test::kUnitF64);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> weight = row_of(dy.doubles(), row, s.h);
      const auto f = [&](const std::vector<double>& v) {
        const std::vector<double> y =
            reference_row(v, row / s.heads % s.t, double{kScale}, double{kEps});
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i)
          sum += y[i] * weight[i];
        return sum;
      };
      const std::vector<double> gradient =
          test::central_differences(f, row_of(x.doubles(), row, s.h), h);
      want.insert(want.end(), gradient.begin(), gradient.end());
    }
    rotary_norm(
        stream,
        {.x = x, .rstd = rstd, .cos = table.cos, .sin = table.sin, .scale = kScale, .eps = kEps});
    rotary_norm_backward(
        stream,
        {.dx = dy, .y = x, .rstd = rstd, .cos = table.cos, .sin = table.sin, .scale = kScale});
    // Two dot products of h terms; the difference quotients add an error of order h^2.
    EXPECT_LE(test::relative_error<float>(dy.values(), want),
              test::worst_case(2 * s.h + 20) + 100 * h * h)
        << s.h;
  }
}

TEST(RotaryTable, HoldsTheRoundedValuesInBF16) {
  const Tables exact = tables(40, 6);
  const Tables rounded = tables(40, 6, DType::kBF16);
  EXPECT_EQ(rounded.cos.doubles(), exact.cos.rounded(DType::kBF16).doubles());
  EXPECT_EQ(rounded.sin.doubles(), exact.sin.rounded(DType::kBF16).doubles());
}

// The references are the fp32 kernels, which are compared with float64 above, applied to
// widened bf16 inputs.
TEST(RotaryNormBF16, IsTheFp32ResultRoundedOnce) {
  test::KernelStream stream;
  const auto widened = [](const HostTensor& x) {
    const std::vector<double> values = x.doubles();
    return HostTensor(x.tensor().shape, std::vector<float>(values.begin(), values.end()));
  };
  for (const Size& s : kSizes) {
    const Shape shape{s.b, s.t, s.heads, s.h};
    const HostTensor x = random_tensor(shape, "x", 2.0F).rounded(DType::kBF16);
    const HostTensor dx = random_tensor(shape, "dx").rounded(DType::kBF16);
    const HostTensor x32 = widened(x);
    const HostTensor dx32 = widened(dx);
    const Tables table = tables(s.first_position + s.t, s.h, DType::kBF16);
    const HostTensor cos32 = widened(table.cos);
    const HostTensor sin32 = widened(table.sin);
    const HostTensor rstd({s.b, s.t, s.heads});
    const HostTensor rstd32 = rstd.copy();
    rotary_norm(stream, {.x = x,
                         .rstd = rstd,
                         .cos = table.cos,
                         .sin = table.sin,
                         .scale = 1.25F,
                         .first_position = s.first_position});
    rotary_norm(stream, {.x = x32,
                         .rstd = rstd32,
                         .cos = cos32,
                         .sin = sin32,
                         .scale = 1.25F,
                         .first_position = s.first_position});
    // The host sums rows of both dtypes in the same order. A GPU reads more bf16 values at once, so
    // its fp32 sums may differ before the rounding.
    const double sums = stream.is_host() ? 0.0 : test::worst_case(2 * s.h);
    const double once = test::kUnitBF16 + sums;
    EXPECT_LE(test::relative_error(rstd.doubles(), rstd32.doubles()), sums);
    EXPECT_LE(test::relative_error(x.doubles(), x32.doubles()), once);
    if (stream.is_host()) {
      EXPECT_EQ(x.doubles(), x32.rounded(DType::kBF16).doubles());
    }

    const HostTensor y32 = widened(x);  // the backward pass reads the rounded output
    rotary_norm_backward(
        stream,
        {.dx = dx, .y = x, .rstd = rstd, .cos = table.cos, .sin = table.sin, .scale = 1.25F});
    rotary_norm_backward(
        stream, {.dx = dx32, .y = y32, .rstd = rstd, .cos = cos32, .sin = sin32, .scale = 1.25F});
    EXPECT_LE(test::relative_error(dx.doubles(), dx32.doubles()), once);
    if (stream.is_host()) {
      EXPECT_EQ(dx.doubles(), dx32.rounded(DType::kBF16).doubles());
    }
  }
}

TEST(RotaryNorm, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor x({1, 3, 2, 8});
  const HostTensor rstd({1, 3, 2});
  const Tables table = tables(4, 8);
  const auto forward = [&](const RotaryNormArgs& args) {
    return test::message_of<Error>([&] { rotary_norm(stream, args); });
  };
  const RotaryNormArgs good{.x = x, .rstd = rstd, .cos = table.cos, .sin = table.sin};
  EXPECT_EQ(forward(good), "no exception");
  RotaryNormArgs bad = good;
  bad.first_position = 2;
  EXPECT_THAT(forward(bad), AllOf(HasSubstr("rotary_norm: positions up to 5"),
                                  HasSubstr("beyond the tables (4, 4)")));
  bad = good;
  const HostTensor odd({1, 3, 2, 7});
  bad.x = odd;
  EXPECT_THAT(forward(bad), HasSubstr("rotary_norm: head size 7 is odd"));
  bad = good;
  bad.rstd = rstd.tensor().view({6});
  EXPECT_THAT(forward(bad), HasSubstr("rotary_norm: rstd is (6)"));
  bad = good;
  bad.sin = table.sin.tensor().rows(0, 3);
  EXPECT_THAT(forward(bad), HasSubstr("rotary_norm: sin is (3, 4)"));
  EXPECT_THAT(test::message_of<Error>([&] {
                rotary_norm_backward(
                    stream, {.dx = x, .y = odd, .rstd = rstd, .cos = table.cos, .sin = table.sin});
              }),
              HasSubstr("rotary_norm_backward: head size 7 is odd"));
}

}  // namespace
}  // namespace muo
