#include "kernels/activation.h"

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
#include "support/unaligned.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using ::testing::HasSubstr;

double f(double x) { return x > 0 ? x * x : 0.0; }

// Sizes that leave remainders of 16-byte accesses; the last one takes several blocks on a GPU.
const std::vector<Shape> kShapes = {{0}, {1}, {15}, {16}, {3, 37}, {2, 5, 129}, {8195}};

TEST(ReluSquared, AgreesWithFloat64) {
  test::KernelStream stream;
  for (const Shape& shape : kShapes) {
    const HostTensor x = random_tensor(shape, "x");
    const HostTensor y(shape);
    relu_squared(stream, {.y = y, .x = x});
    for (std::size_t i = 0; i < x.values().size(); ++i)
      EXPECT_EQ(y.values()[i], static_cast<float>(f(double{x.values()[i]}))) << i;
  }
}

// x^2 and 2 x dy of bf16 values are exact in fp32, so the stored values are rounded once.
TEST(ReluSquaredBF16, IsTheRoundedValueBothWays) {
  test::KernelStream stream;
  for (const Shape& shape : kShapes) {
    const HostTensor x = random_tensor(shape, "x").rounded(DType::kBF16);
    const HostTensor y(shape, DType::kBF16);
    const HostTensor dy = random_tensor(shape, "dy").rounded(DType::kBF16);
    const std::vector<double> before = dy.doubles();
    relu_squared(stream, {.y = y, .x = x});
    relu_squared_backward(stream, {.dx = dy, .dy = dy, .y = y});
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double at = x.doubles()[i];
      EXPECT_EQ(y.values<BF16>()[i].bits, to_bf16(static_cast<float>(f(at))).bits) << i;
      EXPECT_EQ(dy.doubles()[i],
                double{to_f32(to_bf16(static_cast<float>(2 * std::max(at, 0.0) * before[i])))});
    }
  }
}

TEST(ReluSquaredBackward, AgreesWithFiniteDifferencesOfFloat64) {
  test::KernelStream stream;
  for (const Shape& shape : kShapes) {
    const HostTensor x = random_tensor(shape, "x");
    const HostTensor dy = random_tensor(shape, "dy");
    const HostTensor y(shape);
    const HostTensor dx(shape);
    relu_squared(stream, {.y = y, .x = x});
    relu_squared_backward(stream, {.dx = dx, .dy = dy, .y = y});
    constexpr double kStep = 0x1p-20;  // exact for a parabola, except for roundings of u / step
    for (std::size_t i = 0; i < x.values().size(); ++i) {
      const double at{x.values()[i]};
      if (std::abs(at) < kStep) continue;  // where the derivative jumps
      const double want = (f(at + kStep) - f(at - kStep)) / (2 * kStep) * double{dy.values()[i]};
      const double rounding =
          (at * at + 1) * test::kUnitF64 / kStep * std::abs(double{dy.values()[i]});
      EXPECT_NEAR(double{dx.values()[i]}, want, rounding + test::worst_case(2) * std::abs(want));
    }
  }
}

// y determines max(x, 0): the rounded root of the rounded square is exact.
TEST(ReluSquaredBackward, IsThatOfXForEveryBF16) {
  test::KernelStream stream;
  std::vector<BF16> numbers;
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const double x = double{to_f32(BF16{static_cast<std::uint16_t>(bits)})};
    if (0x1p-63 <= x && x < 0x1p63) numbers.push_back({static_cast<std::uint16_t>(bits)});
  }
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  const HostTensor x(shape, DType::kBF16);
  const HostTensor dy(shape, DType::kBF16);
  std::ranges::copy(numbers, x.values<BF16>().begin());
  std::ranges::fill(dy.values<BF16>(), to_bf16(0.5F));
  relu_squared(stream, {.y = x, .x = x});
  relu_squared_backward(stream, {.dx = dy, .dy = dy, .y = x});
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(dy.values<BF16>()[i].bits, numbers[i].bits);
}

TEST(ReluSquaredBackward, IsThatOfXInFP32) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({100'000}, "x");
  const HostTensor dy({100'000});
  std::ranges::fill(dy.values(), 0.5F);
  const HostTensor y({100'000});
  relu_squared(stream, {.y = y, .x = x});
  relu_squared_backward(stream, {.dx = dy, .dy = dy, .y = y});
  for (std::size_t i = 0; i < x.values().size(); ++i)
    EXPECT_EQ(dy.values()[i], std::max(x.values()[i], 0.0F));
}

TEST(ReluSquared, InPlaceGivesTheSameBits) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({77}, "x");
  const HostTensor y({77});
  const HostTensor dy = random_tensor({77}, "dy");
  const HostTensor dx({77});
  relu_squared(stream, {.y = y, .x = x});
  relu_squared(stream, {.y = x, .x = x});
  EXPECT_TRUE(std::ranges::equal(x.values(), y.values()));
  relu_squared_backward(stream, {.dx = dx, .dy = dy, .y = y});
  relu_squared_backward(stream, {.dx = dy, .dy = dy, .y = y});
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
}

TEST(ReluSquared, AddressesDoNotMatter) {
  test::KernelStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor x = random_tensor({2051}, "x").rounded(dtype);
    const HostTensor dy = random_tensor({2051}, "dy").rounded(dtype);
    const HostTensor y({2051}, dtype);
    const HostTensor dx({2051}, dtype);
    const test::Unaligned other_y(y);
    const test::Unaligned other_dx(dx);
    relu_squared(stream, {.y = y, .x = x});
    relu_squared(stream, {.y = other_y, .x = test::Unaligned(x)});
    EXPECT_EQ(other_y.doubles(), y.doubles());
    relu_squared_backward(stream, {.dx = dx, .dy = dy, .y = y});
    relu_squared_backward(stream, {.dx = other_dx, .dy = dy, .y = test::Unaligned(y)});
    EXPECT_EQ(other_dx.doubles(), dx.doubles());
  }
}

TEST(ReluSquared, PropagatesNaN) {
  test::KernelStream stream;
  const HostTensor x({20});
  x.values()[3] = x.values()[18] = std::numeric_limits<float>::quiet_NaN();
  const HostTensor y({20});
  relu_squared(stream, {.y = y, .x = x});
  EXPECT_TRUE(std::isnan(y.values()[3]));
  EXPECT_TRUE(std::isnan(y.values()[18]));
  EXPECT_EQ(y.values()[4], 0.0F);
}

TEST(ReluSquared, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor x({6});
  const HostTensor y({2, 3});
  EXPECT_THAT(test::message_of<Error>([&] { relu_squared(stream, {.y = y, .x = x}); }),
              HasSubstr("relu_squared: y is (2, 3)"));
  const HostTensor long_x({7});
  const auto part = [&](std::int64_t begin) { return Tensor(long_x).rows(begin, begin + 6); };
  EXPECT_THAT(test::message_of<Error>([&] { relu_squared(stream, {.y = part(0), .x = part(1)}); }),
              HasSubstr("relu_squared: y overlaps x"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { relu_squared_backward(stream, {.dx = x, .dy = y, .y = HostTensor({6})}); }),
              HasSubstr("relu_squared_backward: dy is (2, 3)"));
  EXPECT_THAT(test::message_of<Error>(
                  [&] { relu_squared_backward(stream, {.dx = x, .dy = HostTensor({6}), .y = x}); }),
              HasSubstr("relu_squared_backward: dx overlaps y"));
}

}  // namespace
}  // namespace muo
