#include "kernels/fused_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/activation.h"
#include "kernels/gemm.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;

struct Sizes {
  std::int64_t m, n, k;
};
// Whole and partial tiles. Sizes that are not multiples of a vector are computed by
// separate kernels.
constexpr Sizes kSizes[] = {{128, 256, 64}, {200, 72, 40}, {1, 8, 8}, {37, 24, 104}, {5, 7, 3}};

// One element: its sum in float64, and the sum of magnitudes.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

// Error bound of an fp32 sum of k products in any order, followed by roundings to `dtype`, whose
// relative error is u.
double bound(const Sum& sum, std::int64_t k, DType dtype) {
  const double u = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24;
  return static_cast<double>(k + 1) * 0x1p-23 * sum.magnitude + u * std::abs(sum.value);
}

class FusedProduct : public ::testing::TestWithParam<DType> {};

TEST_P(FusedProduct, IsReluSquaredOfTheProduct) {
  test::KernelStream stream;
  const double u = GetParam() == DType::kBF16 ? 0x1p-8 : 0x1p-24;
  for (const auto& [m, n, k] : kSizes) {
    const HostTensor x = random_tensor({m, k}, "x").rounded(GetParam());
    const HostTensor w = random_tensor({n, k}, "w").rounded(GetParam());
    const HostTensor y({m, n}, GetParam());
    gemm_relu_squared(stream, {.y = y, .x = x, .w = w});
    const std::vector<double> xs = x.doubles(), ws = w.doubles(), got = y.doubles();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        Sum sum;
        for (std::int64_t l = 0; l < k; ++l)
          sum.add(xs[static_cast<std::size_t>(i * k + l)], ws[static_cast<std::size_t>(j * k + l)]);
        const double r = std::max(sum.value, 0.0);
        const double e = bound(sum, k, GetParam());
        ASSERT_NEAR(got[static_cast<std::size_t>(i * n + j)], r * r,
                    2 * r * e + e * e + 2 * u * (r + e) * (r + e))
            << m << " x " << n << " x " << k << ", " << i << " " << j;
      }
  }
}

TEST_P(FusedProduct, BackwardIsTheProductTimesTheDerivative) {
  test::KernelStream stream;
  const double u = GetParam() == DType::kBF16 ? 0x1p-8 : 0x1p-24;
  for (const auto& [m, n, k] : kSizes) {
    const HostTensor dy = random_tensor({m, k}, "dy").rounded(GetParam());
    const HostTensor w = random_tensor({k, n}, "w").rounded(GetParam());
    const HostTensor y = random_tensor({m, n}, "y").rounded(GetParam());
    const HostTensor before = y.copy();  // the input of the activation
    relu_squared(stream, {.y = y, .x = y});
    const HostTensor dx({m, n}, GetParam());
    gemm_relu_squared_backward(stream, {.dx = dx, .dy = dy, .w = w, .y = y});
    const std::vector<double> dys = dy.doubles(), ws = w.doubles(), xs = before.doubles(),
                              got = dx.doubles();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        Sum sum;
        for (std::int64_t l = 0; l < k; ++l)
          sum.add(dys[static_cast<std::size_t>(i * k + l)],
                  ws[static_cast<std::size_t>(l * n + j)]);
        const double slope = 2 * std::max(xs[static_cast<std::size_t>(i * n + j)], 0.0);
        const double e = bound(sum, k, GetParam());
        ASSERT_NEAR(got[static_cast<std::size_t>(i * n + j)], slope * sum.value,
                    slope * e + 2 * u * slope * (std::abs(sum.value) + e))
            << m << " x " << n << " x " << k << ", " << i << " " << j;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FusedProduct, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Without a fused kernel, or if a GPU's fused kernel was found to be wrong, the result is bit by
// bit that of the two operations.
TEST(FusedProduct, HasTheRoundingsOfSeparateKernels) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({64, 8}, "x").rounded(DType::kBF16);
  const HostTensor w = random_tensor({16, 8}, "w").rounded(DType::kBF16);
  const HostTensor y({64, 16}, DType::kBF16), pair({64, 16}, DType::kBF16);
  gemm_relu_squared(stream, {.y = y, .x = x, .w = w});
  gemm(stream, {.d = pair, .a = x, .b = w, .transpose_b = true});
  relu_squared(stream, {.y = pair, .x = pair});
  std::size_t differ = 0;
  for (std::size_t i = 0; i < y.doubles().size(); ++i)
    if (y.doubles()[i] != pair.doubles()[i]) ++differ;
  // fp32 sums of 8 products in another order: only a few are rounded to another bf16 value.
  EXPECT_LE(differ, 4U);
}

}  // namespace
}  // namespace muo
