#include "optim/newton_schulz.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

class HeapArena final : public Arena {
 public:
  Tensor tensor(const TensorSpec& spec) override {
    tensors_.emplace_back(spec.shape, spec.dtype);
    return tensors_.back();
  }

 private:
  std::vector<HostTensor> tensors_;
};

struct Golden {
  double sigma;
  std::array<double, 5> after;
};
constexpr Golden kGolden[] = {
    {1e-4, {0.000816, 0.003298, 0.012833, 0.042162, 0.098806}},
    {1e-3, {0.008157, 0.032975, 0.128227, 0.416347, 0.858873}},
    {2e-3, {0.016313, 0.065940, 0.255822, 0.801428, 1.140407}},
    {5e-3, {0.040780, 0.164680, 0.628559, 1.522774, 1.001336}},
    {0.01, {0.081543, 0.328152, 1.181013, 1.046786, 1.027110}},
    {0.05, {0.405022, 1.456299, 0.419347, 1.209261, 0.908558}},
    {0.1, {0.793331, 1.962013, 1.409083, 0.584688, 1.059161}},
    {0.2, {1.456526, 0.486910, 1.588694, 0.425240, 0.872253}},
    {0.5, {1.764077, 0.254052, 0.943760, 1.458098, 0.910611}},
    {0.7, {0.666564, 1.928779, 1.121279, 1.169058, 0.935634}},
    {0.9, {0.326833, 1.225163, 1.066262, 1.272883, 0.874922}},
    {0.99, {1.360025, 0.758980, 1.868993, 1.273277, 0.874761}},
    {1.0, {1.552032, 0.276372, 1.017837, 1.354657, 0.859129}},
};
constexpr double kSixDigits = 0.5e-6;

double polynomial(const Quintic& p, double x) {
  return p.a * x + p.b * std::pow(x, 3) + p.c * std::pow(x, 5);
}

// Bound on the error of the map in fp32: what came in grows by |p'|, and each of about eight
// roundings on the way to one term (coefficient, x x, A A, products, sums) adds a unit of its size.
double rounding_after_five(double x) {
  constexpr double kRoundings = 8;
  double error = x * kUnitF32;
  for (const Quintic& p : kPolarExpress) {
    const double slope = p.a + 3 * p.b * x * x + 5 * p.c * std::pow(x, 4);
    const double terms =
        std::abs(p.a * x) + std::abs(p.b * x * x * x) + std::abs(p.c * std::pow(x, 5));
    error = std::abs(slope) * error + kRoundings * kUnitF32 * terms;
    x = polynomial(p, x);
  }
  return error;
}

TEST(PolarExpress, CoefficientsGiveTheGoldenTable) {
  for (const Golden& row : kGolden) {
    double x = row.sigma;
    for (std::size_t i = 0; i < kPolarExpress.size(); ++i) {
      x = polynomial(kPolarExpress[i], x);
      EXPECT_NEAR(x, row.after[i], kSixDigits) << "sigma " << row.sigma << " after " << i + 1;
    }
  }
}

TEST(NewtonSchulz, DiagonalMatricesFollowTheScalarMap) {
  const auto count = static_cast<std::int64_t>(std::size(kGolden));
  for (const Shape& shape :
       {Shape{2, count, count}, Shape{2, count, count + 6}, Shape{2, count + 9, count}}) {
    HeapArena arena;
    const HostTensor u(shape);
    const NewtonSchulz iteration("test", u, DType::kF32, kPolarExpress, arena);
    float* x = iteration.input().as<float>();
    const std::int64_t matrix = shape[1] * shape[2];
    std::fill_n(x, 2 * matrix, 0.0F);
    // The second matrix of the batch has them in the opposite order and with the opposite sign.
    for (std::int64_t i = 0; i < count; ++i) {
      const auto sigma = static_cast<float>(kGolden[i].sigma);
      x[i * shape[2] + i] = sigma;
      x[matrix + (count - 1 - i) * shape[2] + count - 1 - i] = -sigma;
    }
    KernelStream stream;
    iteration.run(stream);
    const auto values = u.values();
    for (std::int64_t i = 0; i < count; ++i) {
      const Golden& row = kGolden[i];
      const double tolerance = kSixDigits + rounding_after_five(row.sigma);
      const auto at = [&](std::int64_t b, std::int64_t j) {
        return values[static_cast<std::size_t>(b * matrix + j * shape[2] + j)];
      };
      EXPECT_NEAR(at(0, i), row.after[4], tolerance) << shape.text() << " " << row.sigma;
      EXPECT_NEAR(at(1, count - 1 - i), -row.after[4], tolerance) << shape.text();
    }
    for (std::int64_t i = 0; i < 2 * matrix; ++i) {
      const bool diagonal = (i % matrix) / shape[2] == (i % matrix) % shape[2];
      if (diagonal) continue;
      ASSERT_EQ(values[static_cast<std::size_t>(i)], 0.0F) << shape.text();
    }
  }
}

}  // namespace
}  // namespace muo::test
