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

TEST(MixNorm, NormalisesTheStoredValues) {
  test::KernelStream stream;
  const HostTensor alpha({1}, std::vector<float>{1.15F});
  for (const std::int64_t c : {1, 3, 16}) {  // with few columns, a rounding is visible in the norm
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
        // Norm-wise: two roundings of the mix, a sum of squares, and one factor.
        EXPECT_LT(test::relative_error<float>(mixed.values(), want.mixed), test::worst_case(3));
        EXPECT_LT(test::relative_error<float>(y.values(), want.y), test::worst_case(c + 8));
        EXPECT_LT(test::relative_error<float>(rstd.values(), want.rstd), test::worst_case(c + 8));
        // y is the same in place and without `mixed`.
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

// The inputs of mix_norm with (kN, c), and the gradients of its outputs.
struct Mixed {
  Mixed(std::int64_t c, DType dtype, bool scales_x, bool adds_z)
      : x(random_tensor({kN, c}, "x").rounded(dtype)),
        z(random_tensor({kN, c}, "z").rounded(dtype)),
        dx(random_tensor({kN, c}, "dx").rounded(dtype)),
        dy(random_tensor({kN, c}, "dy").rounded(dtype)),
        dz(random_tensor({kN, c}, "dz").rounded(dtype)),
        y({kN, c}, dtype),
        has_alpha(scales_x),
        has_beta(adds_z) {}

  void forward(Stream& stream) const {
    mix_norm(stream, {.y = y,
                      .rstd = rstd,
                      .x = x,
                      .z = z,
                      .alpha = has_alpha ? alpha.tensor() : Tensor{},
                      .beta = has_beta ? beta.tensor() : Tensor{},
                      .sign = -1.0F});
  }
  void backward(Stream& stream, bool add, bool accumulate) const {
    mix_norm_backward(stream, {.dx = dx,
                               .dz = has_beta ? dz.tensor() : Tensor{},
                               .dy = dy,
                               .y = has_alpha ? Tensor{} : y.tensor(),
                               .rstd = rstd,
                               .x = has_alpha ? x.tensor() : Tensor{},
                               .z = has_beta ? z.tensor() : Tensor{},
                               .alpha = has_alpha ? alpha.tensor() : Tensor{},
                               .beta = has_beta ? beta.tensor() : Tensor{},
                               .dalpha = dalpha,
                               .dbeta = dbeta,
                               .sign = -1.0F,
                               .add_dx = add,
                               .add_dz = add,
                               .accumulate = accumulate});
  }

  HostTensor x, z, dx, dy, dz, y;
  bool has_alpha, has_beta;
  HostTensor rstd = HostTensor({kN});
  HostTensor alpha = HostTensor({1}, std::vector<float>{1.15F});
  HostTensor beta = HostTensor({1}, std::vector<float>{-0.3F});
  HostTensor dalpha = HostTensor({1}, std::vector<float>{0.5F});
  HostTensor dbeta = HostTensor({1}, std::vector<float>{-2.0F});
};

// d(mixed), by the derivative of the norm.
std::vector<double> norm_backward_reference(const Mixed& m, double a, double b, bool add) {
  const auto width = static_cast<std::size_t>(m.x.tensor().shape[1]);
  const Reference forward =
      mix_norm_reference(m.x.doubles(), m.z.doubles(), a, b, m.x.tensor().shape[1]);
  const std::vector<double> dx = m.dx.doubles(), dy = m.dy.doubles();
  std::vector<double> d(dx.size());
  for (std::size_t row = 0; row < d.size() / width; ++row) {
    double mean = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i)
      mean += dy[i] * forward.y[i] / static_cast<double>(width);
    for (std::size_t i = row * width; i < (row + 1) * width; ++i)
      d[i] = (add ? dx[i] : 0.0) + forward.rstd[row] * (dy[i] - forward.y[i] * mean);
  }
  return d;
}

TEST(MixNormBackward, GivesTheGradientsOfAllInputs) {
  test::KernelStream stream;
  for (const std::int64_t c : {1, 16, 37, 200})
    for (const bool has_alpha : {true, false})
      for (const bool has_beta : {true, false})
        for (const bool add : {false, true}) {
          if (!has_alpha && !has_beta) continue;
          const Mixed m(c, DType::kF32, has_alpha, has_beta);
          const double a = has_alpha ? double{1.15F} : 1.0;
          const double b = has_beta ? double{0.3F} : 0.0;
          const std::vector<double> d = norm_backward_reference(m, a, b, add);
          const std::vector<double> before_dz = m.dz.doubles();
          std::vector<double> want_dx, want_dz;
          for (std::size_t i = 0; i < d.size(); ++i) {
            want_dx.push_back(a * d[i]);
            want_dz.push_back((add ? before_dz[i] : 0.0) + b * d[i]);
          }
          double size_alpha = 0, size_beta = 0;
          const double want_alpha = (add ? 0.5 : 0.0) + inner(d, m.x.doubles(), &size_alpha);
          const double want_beta = (add ? -2.0 : 0.0) - inner(d, m.z.doubles(), &size_beta);
          m.forward(stream);
          m.backward(stream, add, add);
          // Norm-wise: the roundings of the forward pass, a sum over a row, and the roundings of d,
          // which for c = 1 without dx consists only of rounding errors.
          const double bound = 4 * test::worst_case(2 * c + 16);
          if (c > 1 || add) {
            EXPECT_LT(test::relative_error<float>(m.dx.values(), want_dx), bound);
            if (has_beta) {
              EXPECT_LT(test::relative_error<float>(m.dz.values(), want_dz), bound);
            }
          }
          const double whole = static_cast<double>(kN * c);
          if (has_alpha) {
            EXPECT_NEAR(double{m.dalpha.values()[0]}, want_alpha,
                        bound * (size_alpha + whole + 0.5));
          }
          if (has_beta) {
            EXPECT_NEAR(double{m.dbeta.values()[0]}, want_beta, bound * (size_beta + whole + 2.0));
          }
        }
}

// y is not read if x is given; d is rounded as if it were stored.
TEST(MixNormBackward, HasTheBitsOfSeparateOperations) {
  test::KernelStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t c : {8, 37, 200})
      for (const bool has_alpha : {true, false})
        for (const bool add : {false, true}) {
          const Mixed m(c, dtype, has_alpha, true);
          m.forward(stream);
          const HostTensor d = m.dx.copy(), dz = m.dz.copy();
          rms_norm_backward(stream,
                            {.dx = d, .dy = m.dy, .y = m.y, .rstd = m.rstd, .accumulate = add});
          m.backward(stream, add, true);
          const std::vector<double> exact = d.doubles(), before = dz.doubles();
          std::vector<float> want_dx, want_dz;
          for (std::size_t i = 0; i < exact.size(); ++i) {
            const auto value = static_cast<float>(exact[i]);
            want_dx.push_back(has_alpha ? 1.15F * value : value);
            want_dz.push_back(add ? std::fma(0.3F, value, static_cast<float>(before[i]))
                                  : 0.3F * value);
          }
          EXPECT_EQ(m.dx.doubles(), HostTensor({kN, c}, want_dx).rounded(dtype).doubles());
          EXPECT_EQ(m.dz.doubles(), HostTensor({kN, c}, want_dz).rounded(dtype).doubles());
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
