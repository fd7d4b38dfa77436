#include "optim/newton_schulz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "support/errors.h"
#include "support/heap_arena.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

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

double polynomial(const optim::Quintic& p, double x) {
  return p.a * x + p.b * std::pow(x, 3) + p.c * std::pow(x, 5);
}

// Bounds the error of the map in fp32: the error of the input grows by |p'|, and each of about
// eight roundings that contribute to a term (coefficient, x x, A A, products, sums) adds a unit of
// the size of the term.
double rounding_after_five(double x) {
  constexpr double kRoundings = 8;
  double error = x * kUnitF32;
  for (const optim::Quintic& p : optim::kPolarExpress) {
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
    for (std::size_t i = 0; i < optim::kPolarExpress.size(); ++i) {
      x = polynomial(optim::kPolarExpress[i], x);
      EXPECT_NEAR(x, row.after[i], kSixDigits) << "sigma " << row.sigma << " after " << i + 1;
    }
  }
}

// Like `rounding_after_five`, for runs of steps on one Gram matrix: the error of the input grows by
// the slopes of the run's steps; within the run, each operation propagates roundings and adds some.
double rounding_of_gram(double x, std::size_t steps_per_gram) {
  constexpr double kRoundings = 8;
  double error = x * kUnitF32;
  for (std::size_t done = 0; done < optim::kPolarExpress.size(); done += steps_per_gram) {
    const double from = x;
    double slope = 1;
    double a = x * x;
    double a_error = kRoundings * kUnitF32 * a;
    double product = 1;
    double product_error = 0;
    for (std::size_t i = done; i < std::min(done + steps_per_gram, optim::kPolarExpress.size());
         ++i) {
      const optim::Quintic& p = optim::kPolarExpress[i];
      slope *= std::abs(p.a + 3 * p.b * x * x + 5 * p.c * std::pow(x, 4));
      const double value = p.a + p.b * a + p.c * a * a;
      const double value_error =
          std::abs(p.b + 2 * p.c * a) * a_error +
          kRoundings * kUnitF32 * (p.a + std::abs(p.b * a) + std::abs(p.c * a * a));
      product_error = product_error * std::abs(value) + std::abs(product) * value_error +
                      kRoundings * kUnitF32 * std::abs(product * value);
      product *= value;
      a_error = a_error * value * value + 2 * a * std::abs(value) * value_error +
                2 * kRoundings * kUnitF32 * a * value * value;
      a *= value * value;
      x = polynomial(p, x);
    }
    error = slope * error + from * product_error + kRoundings * kUnitF32 * std::abs(x);
  }
  return error;
}

TEST(NewtonSchulz, DiagonalMatricesFollowTheScalarMap) {
  const auto count = static_cast<std::int64_t>(std::size(kGolden));
  for (const optim::NewtonSchulzForm& form : optim::newton_schulz_forms())
    for (const Shape& shape :
         {Shape{2, count, count}, Shape{2, count, count + 6}, Shape{2, count + 9, count}}) {
      SCOPED_TRACE(concat(form.name, " ", shape.text()));
      HeapArena arena;
      const HostTensor u(shape);
      const optim::NewtonSchulz iteration("test", shape, DType::kF32, u, optim::kPolarExpress, form,
                                          arena);
      float* x = iteration.input().as<float>();
      const std::int64_t matrix = shape[1] * shape[2];
      std::fill_n(x, 2 * matrix, 0.0F);
      // The second matrix of the batch has them in opposite order and with opposite sign.
      for (std::int64_t i = 0; i < count; ++i) {
        const auto sigma = static_cast<float>(kGolden[i].sigma);
        x[i * shape[2] + i] = sigma;
        x[matrix + (count - 1 - i) * shape[2] + count - 1 - i] = -sigma;
      }
      KernelStream stream;
      iteration.run(stream);
      EXPECT_EQ(iteration.result().data, u.tensor().data);
      const auto values = u.values();
      for (std::int64_t i = 0; i < count; ++i) {
        const Golden& row = kGolden[i];
        const bool square = shape[1] == shape[2];
        const double rounding =
            square || form.steps_per_gram == 1
                ? rounding_after_five(row.sigma)
                : rounding_of_gram(row.sigma, static_cast<std::size_t>(form.steps_per_gram));
        EXPECT_LT(rounding, 2e-3);
        const double tolerance = kSixDigits + rounding;
        const auto at = [&](std::int64_t b, std::int64_t j) {
          return values[static_cast<std::size_t>(b * matrix + j * shape[2] + j)];
        };
        EXPECT_NEAR(at(0, i), row.after[4], tolerance) << row.sigma;
        EXPECT_NEAR(at(1, count - 1 - i), -row.after[4], tolerance) << row.sigma;
      }
      for (std::int64_t i = 0; i < 2 * matrix; ++i) {
        const bool diagonal = (i % matrix) / shape[2] == (i % matrix) % shape[2];
        if (diagonal) continue;
        ASSERT_EQ(values[static_cast<std::size_t>(i)], 0.0F);
      }
    }
}

// An iteration in double that shares no code with ours: plain products of one matrix, without
// transposition. Every product may be perturbed at random by as much as sums in fp32 and storing in
// `unit` would change it, which bounds the effect of rounding.
using Matrix = std::vector<double>;
struct Reference {
  std::size_t rows, columns;
  std::span<const optim::Quintic> steps;
  double unit = 0;
  std::uint64_t seed = 0;

  [[nodiscard]] Matrix operator()(Matrix x) const {
    const CounterRandom random(seed, "rounding");
    std::uint64_t drawn = 0;
    const auto draw = [&] { return unit == 0 ? 0.0 : 2 * double{random.uniform(drawn++)} - 1; };
    const auto product = [&](const Matrix& a, const Matrix& b, std::size_t r, std::size_t k,
                             std::size_t c, double alpha, double beta, const Matrix& add) {
      Matrix out(r * c);
      for (std::size_t i = 0; i < r; ++i)
        for (std::size_t j = 0; j < c; ++j) {
          double sum = 0;
          double squares = 0;
          for (std::size_t l = 0; l < k; ++l) {
            const double term = a[i * k + l] * b[l * c + j];
            sum += term;
            squares += term * term;
          }
          const double spread = kUnitF32 * std::sqrt(static_cast<double>(k) * squares);
          sum = alpha * (sum + draw() * spread) + (beta == 0 ? 0 : beta * add[i * c + j]);
          out[i * c + j] = sum * (1 + unit * draw());
        }
      return out;
    };
    Matrix turned(x.size());
    for (const optim::Quintic& p : steps) {
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          turned[j * rows + i] = x[i * columns + j];
      const Matrix a = product(x, turned, rows, columns, rows, 1, 0, {});
      const Matrix b = product(a, a, rows, rows, rows, p.c, p.b, a);
      x = product(b, x, rows, rows, columns, 1, p.a, x);
    }
    return x;
  }
};

HostTensor input_of(const Shape& shape, int rank, float noise) {
  HostTensor x = random_tensor(shape, "noise", noise);
  const HostTensor left = random_tensor({rank, shape[1]}, "left");
  const HostTensor right = random_tensor({rank, shape[2]}, "right");
  for (std::int64_t r = 0; r < rank; ++r)
    for (std::int64_t i = 0; i < shape[1]; ++i)
      for (std::int64_t j = 0; j < shape[2]; ++j)
        x.values()[static_cast<std::size_t>(i * shape[2] + j)] +=
            left.values()[static_cast<std::size_t>(r * shape[1] + i)] *
            right.values()[static_cast<std::size_t>(r * shape[2] + j)];
  const auto norm = static_cast<float>(frobenius<float>(x.values()) * 1.01);
  for (float& v : x.values())
    v /= norm;
  return x;
}

std::vector<double> result_of(const optim::NewtonSchulzForm& form, const HostTensor& x,
                              std::span<const optim::Quintic> steps) {
  HeapArena arena;
  const Shape& shape = x.tensor().shape;
  const DType dtype = x.tensor().dtype;
  const optim::NewtonSchulz iteration("test", shape, dtype, {}, steps, form, arena);
  std::copy_n(x.tensor().data, x.tensor().bytes(), iteration.input().data);
  KernelStream stream;
  iteration.run(stream);
  const HostTensor got(shape, dtype);
  std::copy_n(iteration.result().data, got.tensor().bytes(), got.tensor().data);
  return got.doubles();
}

Reference reference_of(const HostTensor& x, std::span<const optim::Quintic> steps) {
  const Shape& shape = x.tensor().shape;
  return {static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[2]), steps};
}

// Blocks of symmetric products have 96 rows on the host.
TEST(NewtonSchulz, AgreesWithDoubleInEveryForm) {
  const auto expect_agrees = [](const Shape& shape, DType dtype,
                                std::span<const optim::Quintic> steps) {
    const HostTensor x = input_of(shape, 0, 1.0F).rounded(dtype);
    Reference reference = reference_of(x, steps);
    const Matrix want = reference(x.doubles());
    std::vector<double> controls;
    reference.unit = unit_of(dtype);
    for (reference.seed = 1; reference.seed <= 8; ++reference.seed)
      controls.push_back(relative_error(reference(x.doubles()), want));
    std::ranges::sort(controls);
    const double explained = 4 * 0.5 * (controls[3] + controls[4]);
    EXPECT_LT(explained, dtype == DType::kF32 ? 1e-4 : 1.0) << shape.text();
    for (const optim::NewtonSchulzForm& form : optim::newton_schulz_forms())
      EXPECT_LE(relative_error(result_of(form, x, steps), want), explained)
          << form.name << " " << shape.text() << " " << name_of(dtype);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : {Shape{1, 24, 96}, Shape{1, 96, 24}, Shape{1, 24, 31},
                               Shape{1, 24, 24}, Shape{1, 1, 7}, Shape{1, 7, 1}, Shape{1, 1, 1}}) {
      expect_agrees(shape, dtype, optim::kPolarExpress);
      expect_agrees(shape, dtype, optim::kFixedQuintic);
    }
    expect_agrees({1, 100, 104}, dtype, optim::kPolarExpress);
    for (const std::int64_t steps : {1, 2, 4, 7}) {
      expect_agrees({1, 24, 96}, dtype, optim::first_steps(optim::optimizer_versions()[0], steps));
      expect_agrees({1, 24, 24}, dtype, optim::first_steps(optim::optimizer_versions()[2], steps));
    }
  }
}

// Rounding makes eigenvalues of A negative if the matrix has low rank.
TEST(NewtonSchulz, ARestartKeepsTheGramFormStableInBf16) {
  const optim::NewtonSchulzForm& plain = optim::newton_schulz_forms().front();
  const optim::NewtonSchulzForm& gram = optim::newton_schulz_form("gram");
  optim::NewtonSchulzForm without = gram;
  without.steps_per_gram = 5;
  optim::NewtonSchulzForm late = gram;
  late.steps_per_gram = 3;
  double worst_plain = 0;
  double worst_gram = 0;
  double best_without = std::numeric_limits<double>::infinity();
  for (const Shape& shape : {Shape{1, 32, 128}, Shape{1, 128, 32}})
    for (const int rank : {1, 2, 8})
      for (const float noise : {0.0F, 1e-3F, 0.1F}) {
        const HostTensor x = input_of(shape, rank, noise).rounded(DType::kBF16);
        const Matrix want = reference_of(x, optim::kPolarExpress)(x.doubles());
        const auto error = [&](const optim::NewtonSchulzForm& form) {
          return relative_error(result_of(form, x, optim::kPolarExpress), want);
        };
        worst_plain = std::max(worst_plain, error(plain));
        worst_gram = std::max(worst_gram, error(gram));
        best_without = std::min(best_without, error(without));
      }
  EXPECT_LE(worst_gram, worst_plain);
  EXPECT_LT(worst_plain, 0.5);
  EXPECT_GT(best_without, 10);
  // In fp32 all forms are stable: more than two steps per Gram matrix give the same iteration.
  const HostTensor x = input_of({1, 24, 96}, 2, 0.1F);
  const Matrix want = reference_of(x, optim::kPolarExpress)(x.doubles());
  for (const optim::NewtonSchulzForm& form : {without, late})
    EXPECT_LT(relative_error(result_of(form, x, optim::kPolarExpress), want), 1e-3)
        << form.steps_per_gram;
}

TEST(NewtonSchulz, FlopsAreThoseOfTheForm) {
  constexpr double kCube = 64.0 * 64 * 64;
  const auto cubes = [](std::string_view form, const Shape& shape) {
    return optim::newton_schulz_flops(shape, optim::newton_schulz_form(form)) / kCube;
  };
  for (const Shape& shape : {Shape{64, 256}, Shape{256, 64}}) {
    EXPECT_EQ(cubes("plain", shape), 90);
    EXPECT_EQ(cubes("symmetric", shape), 65);
    EXPECT_EQ(cubes("gram", shape), 47);
    EXPECT_EQ(cubes("merged", shape), 90);
    EXPECT_EQ(cubes("gram_merged", shape), 47);
  }
  EXPECT_EQ(cubes("plain", {64, 64}), 30);
  EXPECT_EQ(cubes("symmetric", {64, 64}), 20);
  EXPECT_EQ(cubes("gram", {64, 64}), 20);
  EXPECT_EQ(optim::newton_schulz_flops({64, 64}, optim::newton_schulz_forms().front(), 3) / kCube,
            18);
}

TEST(NewtonSchulz, AnUnknownFormIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(message_of<InputError>([] { static_cast<void>(optim::newton_schulz_form("fast")); }),
              ::testing::HasSubstr(
                  "--newton-schulz: 'fast' is unknown: give plain, symmetric, gram, merged"));
}

}  // namespace
}  // namespace muo::test
