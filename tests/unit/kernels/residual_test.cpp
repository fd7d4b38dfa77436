#include "kernels/residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;

constexpr std::int64_t kN = 5;

struct Reference {
  std::vector<double> mixed, y, rstd;
};

Reference mix_norm_reference(const std::vector<double>& x, const std::vector<double>& z,
                             double alpha, double beta, std::int64_t c) {
  Reference out;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.mixed.push_back(alpha * x[i] + beta * z[i]);
  const auto width = static_cast<std::size_t>(c);
  for (std::size_t row = 0; row < x.size() / width; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i)
      squares += out.mixed[row * width + i] * out.mixed[row * width + i];
    out.rstd.push_back(1.0 / std::sqrt(squares / static_cast<double>(c) + double{kRmsNormEps}));
    for (std::size_t i = 0; i < width; ++i)
      out.y.push_back(out.mixed[row * width + i] * out.rstd.back());
  }
  return out;
}

TEST(MixNorm, TakesTheNormOfWhatIsStored) {
  test::KernelStream stream;
  const HostTensor alpha({1}, std::vector<float>{1.15F});
  for (const std::int64_t c : {1, 3, 16}) {  // few columns: one rounding shows in their norm
    const HostTensor x = random_tensor({kN, c}, "x").rounded(DType::kBF16);
    const HostTensor y({kN, c}, DType::kBF16);
    const HostTensor mixed({kN, c}, DType::kBF16);
    const HostTensor rstd({kN});
    const HostTensor alone({kN});
    mix_norm(stream, {.y = y, .rstd = rstd, .mixed = mixed, .x = x, .alpha = alpha});
    mix_norm(stream, {.y = y, .rstd = alone, .x = x, .alpha = alpha});
    const Reference want = mix_norm_reference(mixed.doubles(), mixed.doubles(), 1.0, 0.0, c);
    EXPECT_LT(test::relative_error<float>(rstd.values(), want.rstd), test::worst_case(c + 8));
    EXPECT_LT(test::relative_error<float>(alone.values(), want.rstd), test::worst_case(c + 8));
  }
}

TEST(MixNorm, MixesThenNormalises) {
  test::KernelStream stream;
  const HostTensor alpha({1}, std::vector<float>{1.15F});
  const HostTensor beta({1}, std::vector<float>{-0.3F});
  for (const std::int64_t c : {1, 16, 37, 200})
    for (const bool has_alpha : {true, false})
      for (const bool has_beta : {true, false}) {
        if (!has_alpha && !has_beta) continue;
        const HostTensor x = random_tensor({kN, c}, "x");
        const HostTensor z = random_tensor({kN, c}, "z");
        const HostTensor y({kN, c});
        const HostTensor rstd({kN});
        const HostTensor mixed({kN, c});
        const Reference want =
            mix_norm_reference(x.doubles(), z.doubles(), has_alpha ? double{1.15F} : 1.0,
                               has_beta ? double{0.3F} : 0.0, c);
        mix_norm(stream, {.y = y,
                          .rstd = rstd,
                          .mixed = mixed,
                          .x = x,
                          .z = has_beta ? z.tensor() : Tensor{},
                          .alpha = has_alpha ? alpha.tensor() : Tensor{},
                          .beta = has_beta ? beta.tensor() : Tensor{},
                          .sign = -1.0F});
        // Norm-wise: two roundings of the mix, a sum of squares, one factor.
        EXPECT_LT(test::relative_error<float>(mixed.values(), want.mixed), test::worst_case(3));
        EXPECT_LT(test::relative_error<float>(y.values(), want.y), test::worst_case(c + 8));
        EXPECT_LT(test::relative_error<float>(rstd.values(), want.rstd), test::worst_case(c + 8));
        // In place, and without keeping the stream, y is the same.
        const HostTensor again({kN, c});
        const HostTensor in_place = x.copy();
        mix_norm(stream, {.y = again,
                          .rstd = rstd,
                          .mixed = in_place,
                          .x = in_place,
                          .z = has_beta ? z.tensor() : Tensor{},
                          .alpha = has_alpha ? alpha.tensor() : Tensor{},
                          .beta = has_beta ? beta.tensor() : Tensor{},
                          .sign = -1.0F});
        for (std::size_t i = 0; i < y.values().size(); ++i) {
          EXPECT_EQ(again.values()[i], y.values()[i]);
          EXPECT_EQ(in_place.values()[i], mixed.values()[i]);
        }
      }
}

double inner(const std::vector<double>& a, const std::vector<double>& b, double* magnitude) {
  double sum = 0;
  *magnitude = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
    *magnitude += std::abs(a[i] * b[i]);
  }
  return sum;
}

TEST(MixBackward, GivesTheGradientsOfAllThatWasMixed) {
  test::KernelStream stream;
  const double a{1.15F};
  const double b{-0.3F};
  const HostTensor alpha({1}, std::vector<float>{1.15F});
  const HostTensor beta({1}, std::vector<float>{-0.3F});
  for (const std::int64_t c : {1, 37})
    for (const bool accumulate : {false, true}) {
      const HostTensor x = random_tensor({kN, c}, "x");
      const HostTensor z = random_tensor({kN, c}, "z");
      const HostTensor dx = random_tensor({kN, c}, "dx");
      const HostTensor dz = random_tensor({kN, c}, "dz");
      const HostTensor dalpha({1}, std::vector<float>{0.5F});
      const HostTensor dbeta({1}, std::vector<float>{-2.0F});
      const std::vector<double> before = dx.doubles();
      std::vector<double> want_dx;
      std::vector<double> want_dz;
      for (std::size_t i = 0; i < before.size(); ++i) {
        want_dx.push_back(a * before[i]);
        want_dz.push_back((accumulate ? dz.doubles()[i] : 0.0) - b * before[i]);
      }
      double size_alpha = 0;
      double size_beta = 0;
      const double want_alpha = (accumulate ? 0.5 : 0.0) + inner(before, x.doubles(), &size_alpha);
      const double want_beta = (accumulate ? -2.0 : 0.0) - inner(before, z.doubles(), &size_beta);
      mix_backward(stream, {.dx = dx,
                            .dz = dz,
                            .x = x,
                            .z = z,
                            .alpha = alpha,
                            .beta = beta,
                            .dalpha = dalpha,
                            .dbeta = dbeta,
                            .sign = -1.0F,
                            .add_dz = accumulate,
                            .accumulate = accumulate});
      EXPECT_LT(test::relative_error<float>(dx.values(), want_dx), test::worst_case(2));
      EXPECT_LT(test::relative_error<float>(dz.values(), want_dz), test::worst_case(3));
      EXPECT_NEAR(double{dalpha.values()[0]}, want_alpha,
                  test::worst_case(c + 2) * (size_alpha + 0.5));
      EXPECT_NEAR(double{dbeta.values()[0]}, want_beta,
                  test::worst_case(c + 2) * (size_beta + 2.0));
    }
}

TEST(MixBackward, LeavesTheStreamsGradientWhereNothingScaledIt) {
  test::KernelStream stream;
  const HostTensor dx = random_tensor({kN, 37}, "dx");
  const HostTensor before = dx.copy();
  const HostTensor z = random_tensor({kN, 37}, "z");
  const HostTensor dz({kN, 37});
  const HostTensor beta({1}, std::vector<float>{0.2F});
  const HostTensor dbeta({1});
  mix_backward(stream, {.dx = dx, .dz = dz, .z = z, .beta = beta, .dbeta = dbeta});
  for (std::size_t i = 0; i < dx.values().size(); ++i) {
    EXPECT_EQ(dx.values()[i], before.values()[i]);
    EXPECT_EQ(dz.values()[i], 0.2F * before.values()[i]);
  }
}

TEST(Add, AddsInPlace) {
  test::KernelStream stream;
  const HostTensor y = random_tensor({3, 7, 5}, "y");
  const HostTensor before = y.copy();
  const HostTensor x = random_tensor({3, 7, 5}, "x");
  add(stream, {.y = y, .x = x});
  for (std::size_t i = 0; i < y.values().size(); ++i)
    EXPECT_EQ(y.values()[i], before.values()[i] + x.values()[i]);
}

}  // namespace
}  // namespace muo
