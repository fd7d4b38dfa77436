#include "kernels/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/embedding.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/token_groups.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

// Gradients are checked against central differences of a float64 forward pass. With a step of 1e-5,
// the error of these is about 1e-10, far below that of fp32.
namespace muo {
namespace {

using test::HostTensor;
using test::random_tensor;
using test::random_tokens;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

constexpr std::size_t kN = 9;
constexpr std::size_t kC = 29;
constexpr std::size_t kHeads = 3;
constexpr std::size_t kH = 10;
constexpr std::size_t kG = 12;
constexpr std::int32_t kVocab = 7;
constexpr double kStep = 1e-5;
constexpr double kBound = 1e-5;  // norm-wise: a hundred units of roundoff

std::vector<double> value_reference(std::vector<double> v, const std::vector<double>& x,
                                    const std::vector<double>& weight,
                                    const std::vector<double>& table, const HostTensor& tokens) {
  for (std::size_t i = 0; i < kN; ++i)
    for (std::size_t k = 0; k < kHeads; ++k) {
      double z = 0;
      for (std::size_t j = 0; j < kG; ++j)
        z += x[i * kC + j] * weight[k * kG + j];
      const auto token = static_cast<std::size_t>(tokens.values<std::int32_t>()[i]);
      for (std::size_t j = 0; j < kH; ++j)
        v[(i * kHeads + k) * kH + j] += 3.0 * sigmoid(z) * table[(token * kHeads + k) * kH + j];
    }
  return v;
}

struct ValueEmbeddingTest : testing::Test {
  test::KernelStream stream;
  HostTensor v = random_tensor({kN, kHeads* kH}, "v");
  HostTensor x = random_tensor({kN, kC}, "x");
  HostTensor weight = random_tensor({kHeads, kG}, "weight", 0.3F);
  HostTensor table = random_tensor({kVocab, kHeads* kH}, "table");
  HostTensor tokens = random_tokens(kN, kVocab, "tokens");
  HostTensor gates{Shape{kN, kHeads}};

  void forward() {
    value_embedding(
        stream,
        {.v = v, .gates = gates, .x = x, .weight = weight, .table = table, .tokens = tokens});
  }
  void backward(const HostTensor& dx, const HostTensor& dweight, const HostTensor& dv,
                bool accumulate) {
    value_embedding_backward(stream, {.dx = dx,
                                      .dweight = dweight,
                                      .dv = dv,
                                      .gates = gates,
                                      .x = x,
                                      .weight = weight,
                                      .table = table,
                                      .tokens = tokens,
                                      .accumulate = accumulate});
  }
};

TEST_F(ValueEmbeddingTest, AddsTheGatedRowsOfTheTokens) {
  const auto want =
      value_reference(v.doubles(), x.doubles(), weight.doubles(), table.doubles(), tokens);
  forward();
  EXPECT_LT(test::relative_error<float>(v.values(), want), test::worst_case(kG + 8));
}

TEST_F(ValueEmbeddingTest, GradientsAreThoseOfTheForward) {
  const HostTensor dv = random_tensor({kN, kHeads * kH}, "dv");
  const HostTensor old = random_tensor({kN, kC}, "old");
  const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& w_,
                        const std::vector<double>& table_) {
    return inner(dv.doubles(), value_reference(v.doubles(), x_, w_, table_, tokens));
  };
  std::vector<double> want_dx = test::central_differences(
      [&](const std::vector<double>& at) { return loss(at, weight.doubles(), table.doubles()); },
      x.doubles(), kStep);
  const std::vector<double> want_dw = test::central_differences(
      [&](const std::vector<double>& at) { return loss(x.doubles(), at, table.doubles()); },
      weight.doubles(), kStep);
  const std::vector<double> want_table = test::central_differences(
      [&](const std::vector<double>& at) { return loss(x.doubles(), weight.doubles(), at); },
      table.doubles(), kStep);
  for (std::size_t i = 0; i < want_dx.size(); ++i)
    want_dx[i] += old.doubles()[i];
  forward();
  for (const bool accumulate : {false, true}) {
    const HostTensor dx = old.copy();
    const HostTensor dw({kHeads, kG}, std::vector<float>(kHeads * kG, accumulate ? 1.0F : 7.0F));
    const HostTensor dtable({kVocab, kHeads * kH});
    backward(dx, dw, dv, accumulate);
    std::vector<double> want = want_dw;
    if (accumulate)
      for (double& w : want)
        w += 1.0;
    EXPECT_LT(test::relative_error<float>(dx.values(), want_dx), kBound);
    EXPECT_LT(test::relative_error<float>(dw.values(), want), kBound);
    embedding_backward(stream, {.dtable = dtable,
                                .dy = dv,
                                .tokens = tokens,
                                .groups = test::grouped(stream, tokens, kVocab),
                                .scale = gates});
    EXPECT_LT(test::relative_error<float>(dtable.values(), want_table), kBound);
  }
}

TEST_F(ValueEmbeddingTest, WeightGradientsOfBF16AreThoseOfFp32Rounded) {
  const HostTensor dv = random_tensor({kN, kHeads * kH}, "dv");
  const HostTensor narrow = random_tensor({kHeads, kG}, "old").rounded(DType::kBF16);
  const HostTensor wide = narrow.widened();
  forward();
  const HostTensor dx({kN, kC});
  for (const bool accumulate : {true, false}) {
    backward(dx, narrow, dv, accumulate);
    backward(dx, wide, dv, accumulate);
    EXPECT_EQ(narrow.doubles(), wide.rounded(DType::kBF16).doubles()) << accumulate;
  }
  EXPECT_THAT(test::message_of<Error>([&] {
                backward(dx, HostTensor({kHeads, kG}, DType::kI32), dv, false);
              }),
              testing::HasSubstr("value_embedding_backward: dweight is int32, expected fp32"));
}

// Both directions in one dtype, with tensors at aligned or unaligned addresses.
struct ValueRun {
  std::vector<double> v, gates, dx, dweight;

  ValueRun(DType dtype, std::int64_t n, std::int64_t heads, std::int64_t h, std::int64_t g,
           bool aligned) {
    constexpr std::int64_t kRows = 11;
    const std::int64_t c = g + 5;
    const auto values = [&](const Shape& shape, std::string_view name, float scale = 1.0F) {
      // bf16 values in either dtype, so that only the arithmetic differs.
      const HostTensor rounded = random_tensor(shape, name, scale).rounded(DType::kBF16);
      return dtype == DType::kBF16 ? rounded.copy() : rounded.widened();
    };
    const auto run = [&]<class Holder>(std::type_identity<Holder>) {
      test::KernelStream stream;
      const Holder v_out(values({n, heads * h}, "v"));
      const Holder gates_out(HostTensor({n, heads}));
      const Holder dx_out(values({n, c}, "dx"));
      const Holder dweight_out(HostTensor({heads, g}));
      const Holder x(values({n, c}, "x"));
      const Holder weight(values({heads, g}, "weight", 0.3F));
      const Holder table(values({kRows, heads * h}, "table"));
      const Holder dv(values({n, heads * h}, "dv"));
      const HostTensor tokens = random_tokens(n, kRows, "tokens");
      value_embedding(stream, {.v = v_out,
                               .gates = gates_out,
                               .x = x,
                               .weight = weight,
                               .table = table,
                               .tokens = tokens});
      value_embedding_backward(stream, {.dx = dx_out,
                                        .dweight = dweight_out,
                                        .dv = dv,
                                        .gates = gates_out,
                                        .x = x,
                                        .weight = weight,
                                        .table = table,
                                        .tokens = tokens});
      v = v_out.doubles();
      gates = gates_out.doubles();
      dx = dx_out.doubles();
      dweight = dweight_out.doubles();
    };
    if (aligned)
      run(std::type_identity<Plain>());
    else
      run(std::type_identity<test::Unaligned>());
  }

 private:
  struct Plain : HostTensor {
    explicit Plain(const HostTensor& values) : HostTensor(values.copy()) {}
  };
};

// Heads of whole 16-byte accesses, more heads than a warp has lanes, and more rows than a
// block processes.
TEST(ValueEmbedding, TypesAndAddressesChangeNoMoreThanRoundings) {
  struct Case {
    std::int64_t n, heads, h, g;
  };
  for (const Case& s : {Case{13, 3, 16, 12}, Case{5, 40, 8, 3}, Case{70, 2, 264, 35}}) {
    const ValueRun want(DType::kF32, s.n, s.heads, s.h, s.g, true);
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const bool aligned : {true, false}) {
        const ValueRun got(dtype, s.n, s.heads, s.h, s.g, aligned);
        const double stored = dtype == DType::kBF16 ? test::kUnitBF16 : 0.0;
        EXPECT_EQ(got.gates, want.gates) << name_of(dtype) << aligned;
        EXPECT_LE(test::relative_error<double>(got.v, want.v), stored);
        EXPECT_LE(test::relative_error<double>(got.dx, want.dx),
                  stored + test::probable(s.h + s.heads));
        EXPECT_LE(test::relative_error<double>(got.dweight, want.dweight), test::probable(s.h));
      }
  }
}

TEST_F(ValueEmbeddingTest, RefusesATokenBeyondTheTable) {
  if (!stream.is_host()) GTEST_SKIP() << "a kernel cannot throw: it prints a line and traps";
  tokens.values<std::int32_t>()[3] = kVocab;
  EXPECT_THAT(test::message_of<Error>([&] { forward(); }),
              testing::HasSubstr("token 7 at position 3"));
}

constexpr std::size_t kB = 2;
constexpr std::size_t kT = 5;
constexpr std::size_t kSmearC = 27;
constexpr std::size_t kSmearG = 24;

std::vector<double> smear_reference(const std::vector<double>& x, const std::vector<double>& weight,
                                    double lambda) {
  std::vector<double> y = x;
  for (std::size_t b = 0; b < kB; ++b)
    for (std::size_t t = 1; t < kT; ++t) {
      const std::size_t row = (b * kT + t) * kSmearC;
      double z = 0;
      for (std::size_t j = 0; j < kSmearG; ++j)
        z += x[row + j] * weight[j];
      for (std::size_t j = 0; j < kSmearC; ++j)
        y[row + j] += lambda * sigmoid(z) * x[row - kSmearC + j];
    }
  return y;
}

TEST(Smear, MixesInTheGatedPreviousToken) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({kB, kT, kSmearC}, "x");
  const HostTensor weight = random_tensor({1, kSmearG}, "weight", 0.3F);
  const HostTensor lambda({1}, std::vector<float>{0.7F});
  const HostTensor y({kB, kT, kSmearC});
  const HostTensor gates({kB, kT});
  smear(stream, {.y = y, .gates = gates, .x = x, .weight = weight, .lambda = lambda});
  const auto want = smear_reference(x.doubles(), weight.doubles(), double{0.7F});
  EXPECT_LT(test::relative_error<float>(y.values(), want), test::worst_case(kSmearG + 8));
  for (std::size_t b = 0; b < kB; ++b)
    for (std::size_t j = 0; j < kSmearC; ++j) {  // the first position is unchanged, bitwise
      const std::size_t i = b * kT * kSmearC + j;
      EXPECT_EQ(y.values()[i], x.values()[i]);
    }
}

TEST(Smear, ContinuesFromThePreviousToken) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({1, kT, kSmearC}, "x");
  const HostTensor weight = random_tensor({1, kSmearG}, "weight", 0.3F);
  const HostTensor lambda({1}, std::vector<float>{0.7F});
  const HostTensor want({1, kT, kSmearC}), want_gates({1, kT});
  smear(stream, {.y = want, .gates = want_gates, .x = x, .weight = weight, .lambda = lambda});
  // Every position is a separate row; the first one has no previous position.
  std::vector<float> before(kT * kSmearC, NAN);
  std::copy_n(x.values().begin(), (kT - 1) * kSmearC, before.begin() + kSmearC);
  std::vector<std::int32_t> numbers(kT);
  std::iota(numbers.begin(), numbers.end(), 0);
  const HostTensor previous({kT, kSmearC}, before), positions({kT}, numbers);
  const HostTensor y({kT, 1, kSmearC}), gates({kT, 1});
  smear(stream, {.y = y,
                 .gates = gates,
                 .x = x.tensor().view({kT, 1, kSmearC}),
                 .weight = weight,
                 .lambda = lambda,
                 .previous = previous,
                 .positions = positions});
  EXPECT_EQ(y.doubles(), want.doubles());
  EXPECT_EQ(gates.doubles(), want_gates.doubles());
}

TEST(SmearBackward, GradientsAreThoseOfTheForward) {
  test::KernelStream stream;
  const HostTensor x = random_tensor({kB, kT, kSmearC}, "x");
  const HostTensor dy = random_tensor({kB, kT, kSmearC}, "dy");
  const HostTensor weight = random_tensor({1, kSmearG}, "weight", 0.3F);
  const HostTensor lambda({1}, std::vector<float>{0.7F});
  const HostTensor y({kB, kT, kSmearC});
  const HostTensor gates({kB, kT});
  const auto loss = [&](const std::vector<double>& x_, const std::vector<double>& w_, double l) {
    return inner(dy.doubles(), smear_reference(x_, w_, l));
  };
  const double l{0.7F};
  const auto want_dx = test::central_differences(
      [&](const std::vector<double>& at) { return loss(at, weight.doubles(), l); }, x.doubles(),
      kStep);
  const auto want_dw = test::central_differences(
      [&](const std::vector<double>& at) { return loss(x.doubles(), at, l); }, weight.doubles(),
      kStep);
  const auto want_dl = test::central_differences(
      [&](const std::vector<double>& at) { return loss(x.doubles(), weight.doubles(), at[0]); },
      {l}, kStep);
  smear(stream, {.y = y, .gates = gates, .x = x, .weight = weight, .lambda = lambda});
  for (const bool accumulate : {false, true}) {
    const HostTensor dx({kB, kT, kSmearC});
    const HostTensor dw({1, kSmearG});
    const HostTensor dlambda({1});
    for (int i = 0; i < (accumulate ? 2 : 1); ++i)
      smear_backward(stream, {.dx = dx,
                              .dweight = dw,
                              .dlambda = dlambda,
                              .dy = dy,
                              .x = x,
                              .gates = gates,
                              .weight = weight,
                              .lambda = lambda,
                              .accumulate = i > 0});
    const double factor = accumulate ? 2.0 : 1.0;
    std::vector<double> twice = want_dw;
    for (double& w : twice)
      w *= factor;
    EXPECT_LT(test::relative_error<float>(dx.values(), want_dx), kBound);
    EXPECT_LT(test::relative_error<float>(dw.values(), twice), kBound);
    EXPECT_NEAR(double{dlambda.values()[0]}, factor * want_dl[0], kBound * 10);
  }
}

struct SmearRun {
  std::vector<double> y, gates, dx, dweight, dlambda;

  SmearRun(DType dtype, std::int64_t t, std::int64_t c, std::int64_t g, bool aligned) {
    const Shape shape{2, t, c};
    const auto values = [&](std::string_view name) {
      const HostTensor rounded = random_tensor(shape, name).rounded(DType::kBF16);
      return dtype == DType::kBF16 ? rounded.copy() : rounded.widened();
    };
    const HostTensor weight = random_tensor({1, g}, "weight", 0.3F);
    const HostTensor lambda({1}, std::vector<float>{0.7F});
    const auto run = [&](const auto& y_out, const auto& dx_out, const Tensor& x, const Tensor& dy) {
      test::KernelStream stream;
      const HostTensor gates_out({2, t});
      const HostTensor dweight_out({1, g});
      const HostTensor dlambda_out({1});
      smear(stream, {.y = y_out, .gates = gates_out, .x = x, .weight = weight, .lambda = lambda});
      smear_backward(stream, {.dx = dx_out,
                              .dweight = dweight_out,
                              .dlambda = dlambda_out,
                              .dy = dy,
                              .x = x,
                              .gates = gates_out,
                              .weight = weight,
                              .lambda = lambda});
      y = y_out.doubles();
      gates = gates_out.doubles();
      dx = dx_out.doubles();
      dweight = dweight_out.doubles();
      dlambda = dlambda_out.doubles();
    };
    const HostTensor empty(shape, dtype);
    const HostTensor x = values("x");
    const HostTensor dy = values("dy");
    if (aligned)
      run(empty, empty.copy(), x, dy);
    else
      run(test::Unaligned(empty), test::Unaligned(empty), test::Unaligned(x), test::Unaligned(dy));
  }
};

TEST(Smear, TypesAndAddressesChangeNoMoreThanRoundings) {
  for (const std::int64_t c : {40, 264, 1032}) {
    constexpr std::int64_t kSteps = 37;
    constexpr std::int64_t kGate = 24;
    const SmearRun want(DType::kF32, kSteps, c, kGate, true);
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const bool aligned : {true, false}) {
        const SmearRun got(dtype, kSteps, c, kGate, aligned);
        const double stored = dtype == DType::kBF16 ? test::kUnitBF16 : 0.0;
        const double sums = test::probable(c + kGate);
        EXPECT_LE(test::relative_error<double>(got.gates, want.gates), test::probable(kGate));
        EXPECT_LE(test::relative_error<double>(got.y, want.y), stored + test::probable(kGate));
        EXPECT_LE(test::relative_error<double>(got.dx, want.dx), 2 * stored + sums);
        EXPECT_LE(test::relative_error<double>(got.dweight, want.dweight), sums);
        EXPECT_LE(test::relative_error<double>(got.dlambda, want.dlambda), sums);
      }
  }
}

}  // namespace
}  // namespace muo
