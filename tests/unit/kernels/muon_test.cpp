#include "kernels/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/step_scalars.h"
#include "support/kernel_stream.h"
#include "support/muon_cases.h"
#include "support/split_tensor.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

// The rounding of intermediates that nanochat stores (docs/spec/optimizer.md, "Muon", steps 3-5).
struct Round {
  bool to_bf16 = false;
  double operator()(double x) const {
    return to_bf16 ? static_cast<double>(to_f32(muo::to_bf16(static_cast<float>(x)))) : x;
  }
};

const MuonNormalisation kNormalisations[] = {{}, {false, 1.02, 1e-6}, {false, 1.0, 1e-7}};

std::vector<double> input_reference(const Shape& shape, const std::vector<double>& grad,
                                    const std::vector<double>& momentum,
                                    const MuonNormalisation& normalisation,
                                    const Round& round = {}) {
  const double mu = static_cast<double>(0.9F);
  const auto rows = static_cast<std::size_t>(shape[1]);
  const auto columns = static_cast<std::size_t>(shape[2]);
  std::vector<double> x(grad.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double m = momentum[i] + (1 - mu) * (grad[i] - momentum[i]);
    x[i] = round((1 - mu) * grad[i] + mu * m);
  }
  for (std::size_t begin = 0; begin < x.size(); begin += rows * columns) {
    double total = 0;
    for (std::size_t i = 0; i < rows * columns; ++i)
      total += x[begin + i] * x[begin + i];
    const double target = std::sqrt(total / static_cast<double>(rows));
    double scaled = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      double norm = 0;
      for (std::size_t c = 0; c < columns; ++c)
        norm += x[begin + r * columns + c] * x[begin + r * columns + c];
      const double factor =
          normalisation.equilibrate ? round(target / std::max(std::sqrt(norm), 1e-6)) : 1.0;
      for (std::size_t c = 0; c < columns; ++c) {
        double& value = x[begin + r * columns + c];
        value = round(value * factor);
        scaled += value * value;
      }
    }
    for (std::size_t i = 0; i < rows * columns; ++i)
      x[begin + i] =
          round(x[begin + i] / (std::sqrt(scaled) * normalisation.factor + normalisation.eps));
  }
  return x;
}

TEST(MuonInput, AgreesWithDoubleForEveryShapeAndSize) {
  KernelStream stream;
  const MuonScalars scalars;
  for (const MuonNormalisation& normalisation : kNormalisations)
    for (const Shape& shape : muon_shapes())
      for (const float size : {1.0F, 1e-4F, 1e-6F}) {  // the last one reaches MuonEq's clamp
        const HostTensor grad = random_tensor(shape, "grad", size);
        const HostTensor momentum = random_tensor(shape, "momentum", size);
        const HostTensor x(shape);
        const HostTensor norms({shape[0], shape[1]});
        muon_input(stream, {.x = x,
                            .row_norms = norms,
                            .grad = grad,
                            .momentum = momentum,
                            .scalars = scalars.tensor,
                            .normalisation = normalisation});
        const std::vector<double> want =
            input_reference(shape, grad.doubles(), momentum.doubles(), normalisation);
        // Per element: six roundings of the lerps, relative to |grad| + |momentum|, which is
        // at most 20 times the norm of the result for mu = 0.9; then the norms, and two
        // roundings of the scaling.
        EXPECT_LE(relative_error<float>(x.values(), want), 20 * worst_case(12)) << shape.text();

        // The same with a separately computed Nesterov input.
        const HostTensor nesterov(shape);
        muon_nesterov(
            stream, {.x = nesterov, .grad = grad, .momentum = momentum, .scalars = scalars.tensor});
        const HostTensor again(shape);
        muon_input(stream, {.x = again,
                            .row_norms = norms,
                            .grad = nesterov,
                            .scalars = scalars.tensor,
                            .normalisation = normalisation});
        EXPECT_TRUE(std::ranges::equal(again.values(), x.values())) << shape.text();
      }
}

// Without Nesterov's look-ahead, the input is the new momentum, bit by bit.
TEST(MuonInput, OfPlainMomentumIsTheMomentumThatACommitStores) {
  KernelStream stream;
  const MuonScalars scalars;
  scalars.tensor.tensor().as_struct<StepScalars>()->muon_look_ahead = 1;
  const Shape shape{257};
  const HostTensor grad = random_tensor(shape, "grad"), momentum = random_tensor(shape, "momentum");
  const HostTensor weight(shape), replica(shape, DType::kBF16), u(shape), input(shape);
  muon_nesterov(stream,
                {.x = input, .grad = grad, .momentum = momentum, .scalars = scalars.tensor});
  muon_commit(stream, {.weight = weight,
                       .replica = replica,
                       .momentum = momentum,
                       .u = u,
                       .grad = grad,
                       .scalars = scalars.tensor});
  EXPECT_TRUE(std::ranges::equal(input.values(), momentum.values()));
}

// The reference rounds where nanochat does, but before rounding, its values differ by fp32
// errors. These change a rounded value only if they cross a boundary between two bf16 values.
// The errors are below 64 units of fp32, relative to values whose boundaries are at least one
// unit of bf16 apart. Hence each rounding changes at most 2 64 2^-24 / 2^-8 = 0.2 % of the
// values, and a whole row for each row factor that changes. A missing or an additional rounding
// changes a third of all values.
TEST(MuonInput, RoundsBF16WhereNanochatDoes) {
  KernelStream stream;
  const MuonScalars scalars;
  for (const MuonNormalisation& normalisation : kNormalisations)
    for (const Shape& shape : muon_shapes())
      for (const float size : {1.0F, 1e-4F}) {
        const HostTensor grad = random_tensor(shape, "grad", size);
        const HostTensor momentum = random_tensor(shape, "momentum", size);
        const HostTensor x(shape, DType::kBF16);
        const HostTensor norms({shape[0], shape[1]});
        muon_input(stream, {.x = x,
                            .row_norms = norms,
                            .grad = grad,
                            .momentum = momentum,
                            .scalars = scalars.tensor,
                            .normalisation = normalisation});
        const std::vector<double> want = input_reference(shape, grad.doubles(), momentum.doubles(),
                                                         normalisation, {.to_bf16 = true});
        const std::vector<double> got = x.doubles();
        std::size_t different = 0;
        for (std::size_t i = 0; i < got.size(); ++i)
          if (got[i] != want[i]) ++different;
        EXPECT_LE(different, got.size() / 50) << shape.text();
        // These few differ by one bf16 value, or by two after both products.
        EXPECT_LE(relative_error(got, want), 4 * kUnitBF16 / std::sqrt(50)) << shape.text();
      }
}

TEST(MuonInput, ZeroGradientGivesZero) {
  KernelStream stream;
  const MuonScalars scalars;
  const Shape shape{2, 6, 12};
  const HostTensor zero(shape);
  const HostTensor x = random_tensor(shape, "x");
  const HostTensor norms({2, 6});
  muon_input(
      stream,
      {.x = x, .row_norms = norms, .grad = zero, .momentum = zero, .scalars = scalars.tensor});
  for (const float v : x.values())
    EXPECT_EQ(v, 0.0F);
}

TEST(MuonScale, AgreesWithDoubleAndKeepsTheNorm) {
  KernelStream stream;
  const MuonScalars scalars;
  for (const bool unit_update : {true, false})
    for (const Shape& shape : muon_shapes()) {
      const auto rows = static_cast<std::size_t>(shape[1]);
      const auto columns = static_cast<std::size_t>(shape[2]);
      const std::size_t length = std::max(rows, columns);
      const auto n = static_cast<double>(std::min(rows, columns));
      const HostTensor u = random_tensor(shape, "u");
      const HostTensor variance =
          random_tensor({shape[0], std::max(shape[1], shape[2])}, "v", 0.01F);
      for (float& v : variance.values())
        v = std::abs(v);
      const HostTensor new_variance(variance.tensor().shape);
      std::vector<double> want = u.doubles();
      const double norm_before = frobenius<double>(want);
      std::vector<double> want_variance = variance.doubles();
      for (std::size_t k = 0; k < static_cast<std::size_t>(shape[0]); ++k) {
        double* x = want.data() + k * rows * columns;
        double* s = want_variance.data() + k * length;
        const auto index = [&](std::size_t i) {  // along the long side
          return rows >= columns ? i / columns : i % columns;
        };
        double norm = 0;
        for (std::size_t i = 0; i < rows * columns; ++i)
          norm += x[i] * x[i];
        std::vector<double> q(length, 0.0);
        for (std::size_t i = 0; i < rows * columns; ++i) {
          if (unit_update) x[i] *= std::sqrt(n) / std::max(std::sqrt(norm), 1e-6);
          q[index(i)] += x[i] * x[i] / n;
        }
        double before = 0;
        double after = 0;
        for (std::size_t i = 0; i < length; ++i) {
          s[i] += (1 - static_cast<double>(0.95F)) * (q[i] - s[i]);
          before += n * q[i];
          after += n * q[i] / std::max(s[i], 1e-10);
        }
        for (std::size_t i = 0; i < rows * columns; ++i)
          x[i] *= std::sqrt(before) / std::max(std::sqrt(after), 1e-10) /
                  std::sqrt(std::max(s[index(i)], 1e-10));
      }
      muon_scale(stream, {.u = u,
                          .x = u,
                          .new_variance = new_variance,
                          .variance = variance,
                          .scalars = scalars.tensor,
                          .unit_update = unit_update});
      EXPECT_LE(relative_error<float>(u.values(), want), worst_case(12)) << shape.text();
      EXPECT_LE(relative_error<float>(new_variance.values(), want_variance), worst_case(8));
      const double kept = unit_update ? std::sqrt(n * static_cast<double>(shape[0])) : norm_before;
      EXPECT_NEAR(frobenius<float>(u.values()), kept, kept * worst_case(12)) << shape.text();
    }
}

TEST(MuonScale, WidensBF16) {
  KernelStream stream;
  const MuonScalars scalars;
  for (const Shape& shape : muon_shapes()) {
    const HostTensor x = random_tensor(shape, "x").rounded(DType::kBF16);
    const std::vector<double> values = x.doubles();
    const HostTensor wide = x.widened();
    const HostTensor variance({shape[0], std::max(shape[1], shape[2])});
    const HostTensor a(variance.tensor().shape);
    const HostTensor b = a.copy();
    const HostTensor u(shape);
    const auto scale = [&](const Tensor& from, const Tensor& to, const HostTensor& new_variance) {
      muon_scale(stream, {.u = to,
                          .x = from,
                          .new_variance = new_variance,
                          .variance = variance,
                          .scalars = scalars.tensor});
    };
    scale(x, u, a);
    scale(wide, wide, b);
    EXPECT_TRUE(std::ranges::equal(u.values(), wide.values())) << shape.text();
    EXPECT_TRUE(std::ranges::equal(a.values(), b.values())) << shape.text();
    EXPECT_EQ(x.doubles(), values);
  }
}

struct CommitTensors {
  Shape shape{1, 24, 16};
  HostTensor weight = random_tensor(shape, "weight");
  HostTensor replica{shape, DType::kBF16};
  HostTensor momentum = random_tensor(shape, "momentum");
  HostTensor variance = random_tensor({1, 24}, "variance");
  HostTensor u = random_tensor(shape, "u");
  HostTensor grad = random_tensor(shape, "grad");
  HostTensor new_variance = random_tensor({1, 24}, "new variance");
  void commit(const MuonScalars& scalars) const {
    KernelStream stream;
    muon_commit(stream, {.weight = weight,
                         .replica = replica,
                         .momentum = momentum,
                         .variance = variance,
                         .u = u,
                         .grad = grad,
                         .new_variance = new_variance,
                         .scalars = scalars.tensor,
                         .rate = muon_rate(24, 16)});
  }
};

TEST(MuonCommit, DecaysCautiouslyAndWritesState) {
  const CommitTensors t;
  t.weight.values()[3] = 0.0F;  // a product of zero counts as agreement
  t.u.values()[4] = 0.0F;
  const std::vector<double> w = t.weight.doubles();
  const std::vector<double> m = t.momentum.doubles();
  const std::vector<double> u = t.u.doubles();
  const std::vector<double> g = t.grad.doubles();
  t.commit(MuonScalars());
  const double lr = static_cast<double>(static_cast<float>(0.02 * std::sqrt(1.5)));
  std::vector<double> want_w(w.size());
  std::vector<double> want_m(w.size());
  std::vector<double> size(w.size());
  std::size_t decayed = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double decay = u[i] * w[i] >= 0 ? lr * 0.25 * w[i] : 0.0;
    decayed += decay != 0.0 ? 1 : 0;
    want_w[i] = w[i] - (lr * u[i] + decay);
    want_m[i] = m[i] + static_cast<double>(1.0F - 0.9F) * (g[i] - m[i]);
    size[i] = std::abs(w[i]) + std::abs(m[i]) + std::abs(u[i]) + std::abs(g[i]);
  }
  EXPECT_GT(decayed, w.size() / 4);
  EXPECT_LT(decayed, 3 * w.size() / 4);
  EXPECT_LE(worst_element<float>(t.weight.values(), want_w, size), worst_case(4));
  EXPECT_LE(worst_element<float>(t.momentum.values(), want_m, size), worst_case(3));
  EXPECT_TRUE(std::ranges::equal(t.variance.values(), t.new_variance.values()));
  EXPECT_EQ(t.replica.doubles(), t.weight.rounded(DType::kBF16).doubles());
}

// A bf16 momentum is the fp32 result, rounded by the noise of the element, however the
// tensor is split.
TEST(MuonCommit, RoundsAMomentumOfBF16Stochastically) {
  const CommitTensors wide, narrow;
  const HostTensor momentum = narrow.momentum.rounded(DType::kBF16);
  for (std::size_t i = 0; i < momentum.values<BF16>().size(); ++i)
    wide.momentum.values()[i] = to_f32(momentum.values<BF16>()[i]);
  MuonScalars scalars;
  scalars.tensor.tensor().as_struct<StepScalars>()->updates = 12;
  wide.commit(scalars);
  const CounterRandom random(0, "c_fc");
  constexpr std::int64_t kBegin = 4294967290;  // elements across 2^32
  for (const std::int64_t begin : {0, 101, 304}) {
    const std::int64_t end = begin == 0 ? 101 : begin == 101 ? 304 : narrow.shape.numel();
    const auto part = [&](const HostTensor& x) { return x.tensor().elements(begin, end - begin); };
    KernelStream stream;
    muon_commit(stream, {.weight = part(narrow.weight),
                         .replica = part(narrow.replica),
                         .momentum = part(momentum),
                         .u = part(narrow.u),
                         .grad = part(narrow.grad),
                         .scalars = scalars.tensor,
                         .rate = muon_rate(24, 16),
                         .rounding = {.random = random, .begin = kBegin + begin}});
  }
  EXPECT_EQ(narrow.weight.doubles(), wide.weight.doubles());
  EXPECT_EQ(narrow.replica.doubles(), wide.replica.doubles());
  const RoundingNoise noise(random, 12);
  for (std::int64_t i = 0; i < narrow.shape.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(momentum.values<BF16>()[at].bits,
              round_stochastically(wide.momentum.values()[at], first_noise(noise(kBegin + i))).bits)
        << i;
  }
}

TEST(MuonCommit, SplitMastersGiveTheResultOfWholeOnes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const CommitTensors whole, t;
    for (float& w : whole.weight.values())
      w = split_and_joined(w);
    const SplitTensor split(whole.weight);
    whole.commit(MuonScalars());
    KernelStream stream;
    muon_commit(stream, {.weight = split.lower,
                         .replica = split.upper,
                         .momentum = t.momentum.rounded(dtype),
                         .u = t.u,
                         .grad = t.grad,
                         .scalars = MuonScalars().tensor,
                         .rate = muon_rate(24, 16)});
    EXPECT_EQ(split.upper.doubles(), whole.replica.doubles());
    for (float& w : whole.weight.values())
      w = split_and_joined(w);
    EXPECT_EQ(split.joined().doubles(), whole.weight.doubles());
  }
}

// A bf16 momentum gives the same input of the iterations as equal fp32 values do.
TEST(MuonInput, ReadsAMomentumOfBF16) {
  const MuonScalars scalars;
  for (const Shape& shape : muon_shapes())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const HostTensor grad = random_tensor(shape, "grad");
      const HostTensor narrow = random_tensor(shape, "momentum").rounded(DType::kBF16);
      const HostTensor wide = narrow.widened();
      const auto input = [&](const HostTensor& momentum) {
        const HostTensor x(shape, dtype), norms({shape[0], shape[1]});
        KernelStream stream;
        muon_input(stream, {.x = x,
                            .row_norms = norms,
                            .grad = grad,
                            .momentum = momentum,
                            .scalars = scalars.tensor});
        return x.doubles();
      };
      EXPECT_EQ(input(narrow), input(wide)) << shape.text();
      const auto nesterov = [&](const HostTensor& momentum) {
        const HostTensor x(shape);
        KernelStream stream;
        muon_nesterov(stream,
                      {.x = x, .grad = grad, .momentum = momentum, .scalars = scalars.tensor});
        return x.doubles();
      };
      EXPECT_EQ(nesterov(narrow), nesterov(wide)) << shape.text();
    }
}

TEST(MuonCommit, MultipliesTheGradientByTheClippingScale) {
  const CommitTensors clipped;
  MuonScalars scalars;
  scalars.tensor.tensor().as_struct<StepScalars>()->gradient_scale = 0.375F;
  clipped.commit(scalars);
  const CommitTensors scaled;
  for (float& g : scaled.grad.values())
    g *= 0.375F;
  scaled.commit(MuonScalars());
  EXPECT_EQ(clipped.weight.doubles(), scaled.weight.doubles());
  EXPECT_EQ(clipped.momentum.doubles(), scaled.momentum.doubles());
}

TEST(MuonCommit, DoesNothingWithoutCommit) {
  const CommitTensors t;
  const HostTensor weight = t.weight.copy();
  const HostTensor momentum = t.momentum.copy();
  const HostTensor variance = t.variance.copy();
  t.commit(MuonScalars(0));
  EXPECT_TRUE(std::ranges::equal(t.weight.values(), weight.values()));
  EXPECT_TRUE(std::ranges::equal(t.momentum.values(), momentum.values()));
  EXPECT_TRUE(std::ranges::equal(t.variance.values(), variance.values()));
  EXPECT_EQ(t.replica.doubles(), std::vector<double>(t.weight.values().size()));
}

TEST(MuonCommit, ElementsAndVarianceMayBeCommittedApart) {
  const CommitTensors together;
  const CommitTensors apart;
  const MuonScalars scalars;
  together.commit(scalars);
  KernelStream stream;
  const std::int64_t n = apart.shape.numel();
  for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{101}}) {
    const std::int64_t count = begin == 0 ? 101 : n - 101;
    muon_commit(stream, {.weight = apart.weight.tensor().elements(begin, count),
                         .momentum = apart.momentum.tensor().elements(begin, count),
                         .u = apart.u.tensor().elements(begin, count),
                         .grad = apart.grad.tensor().elements(begin, count),
                         .scalars = scalars.tensor,
                         .rate = muon_rate(24, 16)});
  }
  muon_commit(
      stream,
      {.variance = apart.variance, .new_variance = apart.new_variance, .scalars = scalars.tensor});
  EXPECT_TRUE(std::ranges::equal(together.weight.values(), apart.weight.values()));
  EXPECT_TRUE(std::ranges::equal(together.momentum.values(), apart.momentum.values()));
  EXPECT_TRUE(std::ranges::equal(together.variance.values(), apart.variance.values()));
}

}  // namespace
}  // namespace muo::test
