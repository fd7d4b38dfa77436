#include "kernels/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Shape> kShapes = {{}, {0}, {1}, {31}, {32}, {3, 1037}, {2, 3, 5, 7}};

// More blocks than the second launch of a sum on a GPU has threads, with vectors and without.
TEST(Sum, CountsEveryElementOnce) {
  test::KernelStream stream;
  constexpr std::int64_t kCount = 1'200'003;
  const HostTensor ones({kCount}, std::vector<float>(kCount, 1.0F));
  const HostTensor out({}, DType::kF64);
  sum(stream, {.out = out, .x = ones});
  EXPECT_EQ(out.values<double>()[0], double{kCount});
  sum(stream, {.out = out, .x = ones.tensor().rows(1, 300'001)});
  EXPECT_EQ(out.values<double>()[0], 300'000.0);
}

TEST(Sum, AgreesWithLongDoubleAndAccumulates) {
  test::KernelStream stream;
  for (const Shape& shape : kShapes) {
    const HostTensor x = random_tensor(shape, "x");
    long double want = 0;
    double magnitude = 0;
    for (const float v : x.values()) {
      want += static_cast<long double>(v);
      magnitude += std::abs(double{v});
    }
    const HostTensor out({}, std::vector<double>{10.0});
    sum(stream, {.out = out, .x = x, .scale = HostTensor({1}, std::vector{0.5F})});
    const double tolerance = test::worst_case(x.tensor().numel() + 2, test::kUnitF64) * magnitude;
    EXPECT_NEAR(out.values<double>()[0], 0.5 * static_cast<double>(want), tolerance);
    sum(stream,
        {.out = out, .x = x, .scale = HostTensor({1}, std::vector{-2.0F}), .accumulate = true});
    EXPECT_NEAR(out.values<double>()[0], -1.5 * static_cast<double>(want), 4 * tolerance);
  }
}

TEST(SumSquares, AgreesWithLongDoubleAndAccumulates) {
  test::KernelStream stream;
  for (const Shape& shape : kShapes) {
    const HostTensor x = random_tensor(shape, "x", 1e20F);  // the squares overflow a float
    long double want = 0;
    for (const float v : x.values())
      want += static_cast<long double>(v) * static_cast<long double>(v);
    const HostTensor out({}, std::vector<double>{10.0});
    sum_squares(stream, {.out = out, .x = x});
    const double tolerance =
        test::worst_case(x.tensor().numel() + 1, test::kUnitF64) * static_cast<double>(want);
    EXPECT_NEAR(out.values<double>()[0], static_cast<double>(want), tolerance);
    sum_squares(stream, {.out = out, .x = x, .accumulate = true});
    EXPECT_NEAR(out.values<double>()[0], 2 * static_cast<double>(want), 3 * tolerance);
  }
}

TEST(SumSquares, IsNotFiniteWhereverAValueIsNot) {
  test::KernelStream stream;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()})
    for (std::size_t at = 0; at < 75; ++at) {
      const HostTensor x = random_tensor({75}, "x");
      x.values()[at] = bad;
      const HostTensor out({}, DType::kF64);
      sum_squares(stream, {.out = out, .x = x});
      EXPECT_FALSE(std::isfinite(out.values<double>()[0])) << at;
      sum(stream, {.out = out, .x = x});
      EXPECT_FALSE(std::isfinite(out.values<double>()[0])) << at;
    }
}

// Results are bitwise equal, also at addresses at which one dtype is read in vectors and the other
// is not, and over many blocks.
TEST(SumSquares, OfBF16AreThoseOfItsValues) {
  test::KernelStream stream;
  for (const std::int64_t n : {0, 1, 3, 31, 32, 75, 3111, 100'003}) {
    const HostTensor narrow = random_tensor({n}, "x", 1e20F).rounded(DType::kBF16);
    const auto squares = [&](const Tensor& x) {
      const HostTensor out({}, std::vector<double>{10.0});
      sum_squares(stream, {.out = out, .x = x, .accumulate = true});
      return out.values<double>()[0];
    };
    EXPECT_EQ(squares(narrow), squares(narrow.widened())) << n;
    EXPECT_EQ(squares(test::Unaligned(narrow)), squares(test::Unaligned(narrow.widened()))) << n;
    for (const std::int64_t begin : {2, 4}) {  // 4 and 8 bytes after an aligned address
      if (n <= begin) continue;
      const auto from = [&](const HostTensor& x) { return x.tensor().rows(begin, n); };
      EXPECT_EQ(squares(from(narrow)), squares(from(narrow.widened()))) << n;
    }
  }
  const HostTensor bad = random_tensor({75}, "x").rounded(DType::kBF16);
  bad.values<BF16>()[74] = to_bf16(std::numeric_limits<float>::infinity());
  const HostTensor out({}, DType::kF64);
  sum_squares(stream, {.out = out, .x = bad});
  EXPECT_FALSE(std::isfinite(out.values<double>()[0]));
}

TEST(LossTotals, SkipIgnoredTargetsAndSpecialTokens) {
  test::KernelStream stream;
  const HostTensor losses({5}, std::vector<float>{1.0F, 2.0F, 4.0F, 8.0F, 16.0F});
  const HostTensor targets({5}, std::vector<std::int32_t>{0, -1, 2, 1, 0});
  const HostTensor bytes({3}, std::vector<std::int32_t>{3, 0, 5});  // token 1 is special
  const HostTensor out({4}, std::vector<double>{100.0, 200.0, 300.0, 400.0});
  loss_totals(stream, {.out = out, .losses = losses, .targets = targets, .bytes = bytes});
  EXPECT_THAT(out.values<double>(), ElementsAre(129.0, 204.0, 321.0, 411.0));
}

TEST(LossTotals, AcceptsNoTargets) {
  test::KernelStream stream;
  const HostTensor out({4}, DType::kF64);
  loss_totals(stream, {.out = out,
                       .losses = HostTensor({0}),
                       .targets = HostTensor({0}, DType::kI32),
                       .bytes = HostTensor({3}, DType::kI32)});
  EXPECT_THAT(out.values<double>(), ElementsAre(0.0, 0.0, 0.0, 0.0));
}

TEST(Reductions, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor x({5});
  const HostTensor out({}, DType::kF64);
  EXPECT_THAT(test::message_of<Error>([&] { sum(stream, {.out = x.tensor().row(0), .x = x}); }),
              HasSubstr("sum: out is fp32, expected fp64"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { sum_squares(stream, {.out = out.tensor().view({1}), .x = x}); }),
              HasSubstr("sum_squares: out is (1), expected ()"));
  const HostTensor narrow({5}, DType::kBF16), integers({5}, DType::kI32);
  EXPECT_THAT(test::message_of<Error>([&] { sum(stream, {.out = out, .x = narrow}); }),
              HasSubstr("sum: x is bf16, expected fp32"));
  EXPECT_THAT(test::message_of<Error>([&] { sum_squares(stream, {.out = out, .x = integers}); }),
              HasSubstr("sum_squares: x is int32, expected fp32"));
  EXPECT_THAT(test::message_of<Error>([&] {
                loss_totals(stream, {.out = HostTensor({4}, DType::kF64),
                                     .losses = x,
                                     .targets = HostTensor({4}, DType::kI32),
                                     .bytes = HostTensor({2}, DType::kI32)});
              }),
              HasSubstr("loss_totals: targets is (4), expected (5)"));
}

TEST(LossTotals, NamesATargetOutsideTheTable) {
  test::KernelStream stream;
  if (!stream.is_host()) GTEST_SKIP() << "a kernel cannot throw: it prints a line and traps";
  EXPECT_THAT(test::message_of<Error>([&] {
                loss_totals(stream, {.out = HostTensor({4}, DType::kF64),
                                     .losses = HostTensor({1}),
                                     .targets = HostTensor({1}, std::vector<std::int32_t>{2}),
                                     .bytes = HostTensor({2}, DType::kI32)});
              }),
              HasSubstr("loss_totals: target 2 at position 0"));
}

}  // namespace
}  // namespace muo
