#include "kernels/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/step_scalars.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/split_tensor.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include "support/unaligned.h"

namespace muo::test {
namespace {

struct Tensors {
  HostTensor weight = random_tensor({1003}, "weight");
  HostTensor m = random_tensor({1003}, "m", 0.1F);
  HostTensor v = random_tensor({1003}, "v", 0.1F);
  HostTensor grad = random_tensor({1003}, "grad");
  HostTensor replica{{1003}, DType::kBF16};
  HostTensor scalars{{static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes};

  explicit Tensors(DType moments = DType::kF32) {
    for (float& x : v.values())
      x = std::abs(x);
    m = m.rounded(moments);
    v = v.rounded(moments);
  }
  void set_scalars(const StepScalars::Adam& group, int commit, float gradient_scale,
                   std::int64_t updates) const {
    StepScalars s;
    s.updates = updates;
    s.gradient_scale = gradient_scale;
    s.commit = commit;
    s.adam[2] = group;
    *scalars.tensor().as_struct<StepScalars>() = s;
  }
  void step(const StepScalars::Adam& group, int commit = 1, float gradient_scale = 1) const {
    set_scalars(group, commit, gradient_scale, 0);
    KernelStream stream;
    adamw(stream, {.weight = weight,
                   .replica = replica,
                   .m = m,
                   .v = v,
                   .grad = grad,
                   .scalars = scalars,
                   .group = 2});
  }
};

TEST(Adamw, MultipliesTheGradientByTheClippingScale) {
  const StepScalars::Adam group{0.1F, 0.8F, 0.995F, 1e-10F, 0.01F, 0.2F, 0.005F};
  const Tensors clipped;
  clipped.step(group, 1, 0.375F);
  const Tensors scaled;
  for (float& g : scaled.grad.values())
    g *= 0.375F;
  scaled.step(group);
  EXPECT_EQ(clipped.weight.doubles(), scaled.weight.doubles());
  EXPECT_EQ(clipped.m.doubles(), scaled.m.doubles());
  EXPECT_EQ(clipped.v.doubles(), scaled.v.doubles());
}

// beta1 below and above one half: both forms of lerp.
const StepScalars::Adam kGroups[] = {{0.1F, 0.8F, 0.995F, 1e-10F, 0.01F, 0.2F, 0.005F},
                                     {0.1F, 0.3F, 0.4F, 1e-10F, 0.0F, 0.7F, 0.6F}};

class AdamwMoments : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, AdamwMoments, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// bf16 moments are rounded when they are stored; the weight is computed from the unrounded moments.
TEST_P(AdamwMoments, AgreeWithDouble) {
  const double stored = GetParam() == DType::kBF16 ? kUnitBF16 : 0.0;
  for (const StepScalars::Adam& group : kGroups) {
    const Tensors t(GetParam());
    std::vector<double> w = t.weight.doubles();
    std::vector<double> m = t.m.doubles();
    std::vector<double> v = t.v.doubles();
    const std::vector<double> g = t.grad.doubles();
    std::vector<double> size_w(w.size());
    std::vector<double> size_m(w.size());
    const double b1 = static_cast<double>(1.0F - group.beta1);
    const double b2 = static_cast<double>(1.0F - group.beta2);
    const double lr = static_cast<double>(group.lr);
    for (std::size_t i = 0; i < w.size(); ++i) {
      size_m[i] = std::abs(m[i]) + std::abs(g[i]);
      w[i] *= 1.0 - lr * static_cast<double>(group.weight_decay);
      m[i] += b1 * (g[i] - m[i]);
      v[i] += b2 * (g[i] * g[i] - v[i]);
      const double d =
          std::sqrt(v[i] / static_cast<double>(group.correction2)) + static_cast<double>(group.eps);
      const double rate = lr / static_cast<double>(group.correction1) / d;
      size_w[i] = std::abs(w[i]) + rate * size_m[i];
      w[i] -= rate * m[i];
    }
    t.step(group);
    EXPECT_LE(worst_element<double>(t.m.doubles(), m, size_m),
              worst_case(4) * (1 + stored) + stored);
    EXPECT_LE(worst_element<double>(t.v.doubles(), v, v),
              worst_case(6) * 4 * (1 + stored) + stored);  // lerp has little cancellation
    EXPECT_LE(worst_element<float>(t.weight.values(), w, size_w), worst_case(16));
    EXPECT_EQ(t.replica.doubles(), t.weight.rounded(DType::kBF16).doubles());
  }
}

TEST_P(AdamwMoments, DoNotDependOnAddresses) {
  const Tensors t(GetParam());
  const Unaligned weight(t.weight);
  const Unaligned replica(t.replica);
  const Unaligned m(t.m);
  const Unaligned v(t.v);
  t.step(kGroups[0]);
  KernelStream stream;
  adamw(stream, {.weight = weight,
                 .replica = replica,
                 .m = m,
                 .v = v,
                 .grad = Unaligned(t.grad),
                 .scalars = t.scalars,
                 .group = 2});
  EXPECT_EQ(weight.doubles(), t.weight.doubles());
  EXPECT_EQ(replica.doubles(), t.replica.doubles());
  EXPECT_EQ(m.doubles(), t.m.doubles());
  EXPECT_EQ(v.doubles(), t.v.doubles());
}

// A bf16 gradient gives the same bits as equal fp32 values, with every type of moments, with whole
// and split masters, with both kinds of rounding, and at any address.
TEST_P(AdamwMoments, GradientsOfBF16GiveTheBitsOfEqualFp32Values) {
  const HostTensor narrow = random_tensor({1003}, "grad").rounded(DType::kBF16);
  const HostTensor wide = narrow.widened();
  struct State {
    std::vector<double> weight, m, v;
    bool operator==(const State&) const = default;
  };
  const auto step = [&](const Tensor& grad, bool splits, bool stochastic) {
    const Tensors t(GetParam());
    t.set_scalars(kGroups[0], 1, 0.375F, 7);
    const SplitTensor split(t.weight);
    KernelStream stream;
    AdamwArgs args{.weight = splits ? split.lower : t.weight,
                   .replica = splits ? split.upper : t.replica,
                   .m = t.m,
                   .v = t.v,
                   .grad = grad,
                   .scalars = t.scalars,
                   .group = 2};
    if (stochastic) args.rounding = StochasticRounding{.random = {0, "wte"}, .begin = 100};
    adamw(stream, args);
    return State{splits ? split.joined().doubles() : t.weight.doubles(), t.m.doubles(),
                 t.v.doubles()};
  };
  for (const bool splits : {false, true})
    for (const bool stochastic : {false, true}) {
      if (stochastic && GetParam() == DType::kF32) continue;
      const State want = step(wide, splits, stochastic);
      EXPECT_TRUE(step(narrow, splits, stochastic) == want) << splits << stochastic;
      EXPECT_TRUE(step(Unaligned(narrow), splits, stochastic) == want) << splits << stochastic;
      const HostTensor other = random_tensor({1003}, "other");
      EXPECT_FALSE(step(other, splits, stochastic) == want) << "the gradient must have an effect";
    }
}

TEST(Adamw, RefusesGradientsOfOtherTypes) {
  const Tensors t;
  KernelStream stream;
  EXPECT_THAT(message_of<Error>([&] {
                adamw(stream, {.weight = t.weight,
                               .m = t.m,
                               .v = t.v,
                               .grad = HostTensor({1003}, DType::kU16),
                               .scalars = t.scalars});
              }),
              ::testing::HasSubstr("adamw: grad is uint16, expected fp32"));
}

// With beta2 = 0.995, a bf16 v near g^2 does not change (docs/spec/optimizer.md, "AdamW"). The
// weight must be computed from the unrounded v, and the stored v must be unchanged.
TEST(Adamw, SmallChangesOfBF16MomentsAreLostOnlyWhenStored) {
  const Tensors t(DType::kBF16);
  std::ranges::fill(t.v.values<BF16>(), to_bf16(1.0F));
  std::ranges::fill(t.grad.values(), 1.1F);  // 0.005 (1.21 - 1) is below half of the spacing, 2^-8
  const std::vector<double> w = t.weight.doubles();
  const std::vector<double> m = t.m.doubles();
  StepScalars::Adam group = kGroups[0];
  group.weight_decay = 0.0F;
  group.correction2 = 1.0F;
  t.step(group);
  const double g = static_cast<double>(1.1F);
  const double v = 1.0 + static_cast<double>(1.0F - group.beta2) * (g * g - 1.0);
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_EQ(t.v.doubles()[i], 1.0);
    const double new_m = m[i] + static_cast<double>(1.0F - group.beta1) * (g - m[i]);
    const double rate = static_cast<double>(group.lr) / static_cast<double>(group.correction1);
    const double size = std::abs(w[i]) + rate * (std::abs(m[i]) + g);
    EXPECT_NEAR(static_cast<double>(t.weight.values()[i]), w[i] - rate * new_m / std::sqrt(v),
                size * worst_case(16));
  }
}

// Stochastic rounding of bf16 moments.
const StochasticRounding kRounding{.random = {0, "wte"}, .begin = 5000000000};

void step_stochastically(const Tensors& t, std::int64_t updates, std::int64_t begin,
                         std::int64_t count) {
  t.set_scalars(kGroups[0], 1, 1, updates);
  const auto part = [&](const HostTensor& x) { return x.tensor().elements(begin, count); };
  KernelStream stream;
  adamw(stream, {.weight = part(t.weight),
                 .replica = part(t.replica),
                 .m = part(t.m),
                 .v = part(t.v),
                 .grad = part(t.grad),
                 .scalars = t.scalars,
                 .group = 2,
                 .rounding = StochasticRounding{kRounding.random, kRounding.begin + begin}});
}

// Weight and unrounded moments equal those with fp32 moments; each moment is rounded by the
// noise of its element.
TEST(AdamwStochasticRounding, RoundsTheFp32ResultByTheNoiseOfTheElement) {
  const Tensors narrow(DType::kBF16);
  Tensors wide;
  for (const auto& [to, from] : {std::pair{&wide.m, &narrow.m}, {&wide.v, &narrow.v}})
    std::ranges::transform(from->values<BF16>(), to->values().begin(),
                           [](BF16 value) { return to_f32(value); });
  step_stochastically(narrow, 12, 0, 1003);
  wide.step(kGroups[0]);
  EXPECT_EQ(narrow.weight.doubles(), wide.weight.doubles());
  EXPECT_EQ(narrow.replica.doubles(), wide.replica.doubles());
  const RoundingNoise noise(kRounding.random, 12);
  for (std::int64_t i = 0; i < 1003; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::uint32_t bits = noise(kRounding.begin + i);
    ASSERT_EQ(narrow.m.values<BF16>()[at].bits,
              round_stochastically(wide.m.values()[at], first_noise(bits)).bits)
        << i;
    ASSERT_EQ(narrow.v.values<BF16>()[at].bits,
              round_stochastically(wide.v.values()[at], second_noise(bits)).bits)
        << i;
  }
}

TEST(AdamwStochasticRounding, DoesNotDependOnHowATensorIsCut) {
  const Tensors whole(DType::kBF16);
  const Tensors parts(DType::kBF16);
  step_stochastically(whole, 3, 0, 1003);
  for (const auto& [begin, count] : {std::pair{0, 101}, {101, 898}, {999, 4}})
    step_stochastically(parts, 3, begin, count);
  EXPECT_EQ(parts.m.doubles(), whole.m.doubles());
  EXPECT_EQ(parts.v.doubles(), whole.v.doubles());
  EXPECT_EQ(parts.weight.doubles(), whole.weight.doubles());
}

// Stochastic rounding preserves on average the changes that rounding to nearest loses
// (SmallChangesOfBF16MomentsAreLostOnlyWhenStored). With v = 1 and g = 1.1, 200 updates with beta2
// = 0.995 bring v to 1 + 0.21 (1 - 0.995^200) = 1.133. The rounding error of each update has mean 0
// and lies within a spacing of 2^-7, so its deviation is at most half of that. Later updates shrink
// the error by 0.995, so the deviation of the sum is at most 2^-8 sqrt(1 / (1 - 0.995^2)).
TEST(AdamwStochasticRounding, KeepsSmallChangesInTheMean) {
  const Tensors t(DType::kBF16);
  std::ranges::fill(t.v.values<BF16>(), to_bf16(1.0F));
  std::ranges::fill(t.grad.values(), 1.1F);
  for (std::int64_t updates = 0; updates < 200; ++updates)
    step_stochastically(t, updates, 0, 1003);
  double mean = 0;
  for (const double v : t.v.doubles())
    mean += v / 1003;
  const double g = static_cast<double>(1.1F);
  const double kept = std::pow(static_cast<double>(kGroups[0].beta2), 200);
  const double deviation = 0x1p-8 / std::sqrt(1 - std::pow(0.995, 2)) / std::sqrt(1003.0);
  EXPECT_NEAR(mean, kept + (1 - kept) * g * g, 6 * deviation);
  EXPECT_GT(mean - 1, 10 * 6 * deviation);  // otherwise the bound is too weak
}

// Masters that are split into the replica and lower halves.
TEST_P(AdamwMoments, SplitMastersGiveTheResultOfWholeOnes) {
  const Tensors whole(GetParam());
  for (float& w : whole.weight.values())
    w = split_and_joined(w);
  const Tensors t(GetParam());
  const SplitTensor split(whole.weight);
  whole.step(kGroups[0]);
  t.set_scalars(kGroups[0], 1, 1, 0);
  KernelStream stream;
  const auto step = [&](const Tensor& weight, const Tensor& replica) {
    adamw(stream, {.weight = weight,
                   .replica = replica,
                   .m = t.m.copy(),
                   .v = t.v.copy(),
                   .grad = t.grad,
                   .scalars = t.scalars,
                   .group = 2});
  };
  const SplitTensor elsewhere(split.joined());
  const Unaligned lower(elsewhere.lower);
  const Unaligned upper(elsewhere.upper);
  step(split.lower, split.upper);
  step(lower, upper);
  EXPECT_EQ(split.upper.doubles(), whole.replica.doubles());
  EXPECT_EQ(upper.doubles(), whole.replica.doubles());
  for (float& w : whole.weight.values())
    w = split_and_joined(w);
  EXPECT_EQ(split.joined().doubles(), whole.weight.doubles());
}

TEST(Adamw, UntouchedRowsDoNotBecomeNaN) {
  const Tensors t;
  for (const HostTensor* x : {&t.m, &t.v, &t.grad})
    std::ranges::fill(x->values(), 0.0F);
  const std::vector<double> before = t.weight.doubles();
  t.step(kGroups[0]);
  const float decay = 1.0F - kGroups[0].lr * kGroups[0].weight_decay;
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(t.weight.values()[i], static_cast<float>(before[i]) * decay);
}

TEST(Adamw, DoesNothingWithoutCommit) {
  const Tensors t;
  const HostTensor weight = t.weight.copy();
  const HostTensor m = t.m.copy();
  const HostTensor v = t.v.copy();
  t.step(kGroups[0], 0);
  EXPECT_TRUE(std::ranges::equal(t.weight.values(), weight.values()));
  EXPECT_TRUE(std::ranges::equal(t.m.values(), m.values()));
  EXPECT_TRUE(std::ranges::equal(t.v.values(), v.values()));
  EXPECT_EQ(t.replica.doubles(), std::vector<double>(1003));
}

}  // namespace
}  // namespace muo::test
