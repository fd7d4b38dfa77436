#include "kernels/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
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
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

double cap_of(double x, double softcap) {
  return softcap > 0 ? softcap * std::tanh(x / softcap) : x;
}

// -log softmax of the capped logits: the loss for every target.
std::vector<double> reference_losses(const std::vector<double>& logits, double softcap) {
  double most = -std::numeric_limits<double>::infinity();
  for (const double x : logits)
    most = std::max(most, cap_of(x, softcap));
  double sum = 0;
  for (const double x : logits)
    sum += std::exp(cap_of(x, softcap) - most);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const double x : logits)
    out.push_back(most + std::log(sum) - cap_of(x, softcap));
  return out;
}

double reference_loss(const std::vector<double>& logits, std::size_t target, double softcap) {
  return reference_losses(logits, softcap)[target];
}

std::vector<double> row_of(const HostTensor& logits, std::int64_t row, std::int64_t count) {
  const std::int64_t padded = logits.tensor().shape[1];
  const auto begin = logits.values().begin() + row * padded;
  return {begin, begin + count};
}

struct Case {
  std::int64_t n, vocab, padded;
  float softcap;
  float spread;  // standard deviation of the logits
};
const std::vector<Case> kCases = {
    {1, 1, 1, 15.0F, 1.0F},         {3, 5, 5, 15.0F, 3.0F},        {2, 16, 16, 0.0F, 1.0F},
    {3, 37, 64, 15.0F, 10.0F},      {3, 37, 64, 0.0F, 30.0F},      {2, 257, 257, 60.0F, 40.0F},
    {2, 1063, 1088, 30.0F, 5.0F},   {2, 1063, 1088, 0.0F, 5.0F},   {0, 5, 8, 15.0F, 1.0F},
    {9, 250, 256, 15.0F, 4.0F},     {9, 250, 256, 0.0F, 4.0F},     {2, 9001, 9001, 15.0F, 4.0F},
    {1, 32759, 32768, 15.0F, 4.0F}, {2, 32768, 32768, 0.0F, 4.0F},  // nanochat's sizes
    {2, 50257, 50304, 15.0F, 4.0F}, {2, 50257, 50304, 0.0F, 4.0F},  // exceed registers
    {1, 90001, 90048, 15.0F, 4.0F}, {1, 90001, 90048, 0.0F, 4.0F},  // exceed shared memory too
};

// The absolute error of an exponent z, from roundings relative to |z|; it becomes a relative error.
double exponent_error(const Case& s) {
  const double largest = s.softcap > 0 ? double{s.softcap} : 6.0 * double{s.spread};
  return 8 * test::kUnitF32 * (1 + 2 * largest);
}

std::int32_t target_of(const HostTensor& targets, std::int64_t i) {
  return targets.values<std::int32_t>()[static_cast<std::size_t>(i)];
}

// A scale in device memory, until the program ends.
Tensor scalar(float value = 1.0F) {
  static std::map<float, HostTensor> scalars;
  return scalars.try_emplace(value, Shape{1}, std::vector{value}).first->second;
}

TEST(CrossEntropy, AgreesWithFloat64) {
  test::KernelStream stream;
  for (const Case& s : kCases) {
    SCOPED_TRACE(concat("vocab ", s.vocab, " softcap ", s.softcap, " spread ", s.spread));
    const HostTensor original = random_tensor({s.n, s.padded}, "logits", s.spread);
    const HostTensor targets =
        test::random_tokens(s.n, static_cast<std::int32_t>(s.vocab), "targets");
    const HostTensor losses({s.n});
    const HostTensor logits = original.copy();
    constexpr float kScale = 0.375F;
    cross_entropy(stream, {.losses = losses,
                           .logits = logits,
                           .targets = targets,
                           .vocab = s.vocab,
                           .softcap = s.softcap,
                           .gradient_scale = scalar(kScale)});
    for (std::int64_t i = 0; i < s.n; ++i) {
      const std::vector<double> x = row_of(original, i, s.vocab);
      const auto target = static_cast<std::size_t>(target_of(targets, i));
      const std::vector<double> want = reference_losses(x, double{s.softcap});
      EXPECT_NEAR(double{losses.values()[static_cast<std::size_t>(i)]}, want[target],
                  exponent_error(s) + test::worst_case(2) * want[target]);
      const std::vector<double> got = row_of(logits, i, s.vocab);
      for (std::size_t j = 0; j < got.size(); ++j) {
        const double probability = std::exp(-want[j]);
        const double hit = j == target ? 1.0 : 0.0;
        const double t = s.softcap > 0 ? std::tanh(x[j] / double{s.softcap}) : 0.0;
        // The bound is relative to scale * probability, because the derivative of the cap has
        // cancellation if tanh is near 1.
        EXPECT_NEAR(
            got[j], double{kScale} * (probability - hit) * (1 - t * t),
            double{kScale} * (probability + hit) * (exponent_error(s) + test::worst_case(10)) +
                double{std::numeric_limits<float>::min()})
            << j;
      }
      const auto padding = logits.values().subspan(static_cast<std::size_t>(i * s.padded + s.vocab),
                                                   static_cast<std::size_t>(s.padded - s.vocab));
      EXPECT_THAT(padding, Each(0.0F));
    }
  }
}

// The reference is the fp32 kernel, which is compared with float64 above, applied to
// the widened logits.
TEST(CrossEntropyBF16, IsTheFp32ResultRoundedOnce) {
  test::KernelStream stream;
  for (const Case& s : kCases)
    for (const bool write_gradient : {true, false}) {
      SCOPED_TRACE(concat("vocab ", s.vocab, " softcap ", s.softcap, " spread ", s.spread));
      const HostTensor logits =
          random_tensor({s.n, s.padded}, "logits", s.spread).rounded(DType::kBF16);
      const std::vector<double> values = logits.doubles();
      const HostTensor wide({s.n, s.padded}, std::vector<float>(values.begin(), values.end()));
      const HostTensor targets =
          test::random_tokens(s.n, static_cast<std::int32_t>(s.vocab), "targets");
      if (s.n > 1) targets.values<std::int32_t>()[1] = -1;
      const HostTensor losses({s.n});
      const HostTensor want({s.n});
      CrossEntropyArgs args{.losses = losses,
                            .logits = logits,
                            .targets = targets,
                            .vocab = s.vocab,
                            .softcap = s.softcap,
                            .gradient_scale = write_gradient ? scalar(0.375F) : Tensor{}};
      cross_entropy(stream, args);
      args.losses = want;
      args.logits = wide;
      cross_entropy(stream, args);
      EXPECT_TRUE(std::ranges::equal(losses.values(), want.values()));
      if (write_gradient) {
        EXPECT_EQ(logits.doubles(), wide.rounded(DType::kBF16).doubles());
      }
    }
}

TEST(CrossEntropy, AddressesDoNotMatter) {
  test::KernelStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const float softcap : {0.0F, 15.0F}) {
      const HostTensor logits = random_tensor({3, 264}, "logits", 4.0F).rounded(dtype);
      const test::Unaligned other(logits);
      const HostTensor losses({3});
      const HostTensor other_losses({3});
      const HostTensor targets = test::random_tokens(3, 259, "targets");
      CrossEntropyArgs args{.losses = losses,
                            .logits = logits,
                            .targets = targets,
                            .vocab = 259,
                            .softcap = softcap,
                            .gradient_scale = scalar()};
      cross_entropy(stream, args);
      args.losses = other_losses;
      args.logits = other;
      cross_entropy(stream, args);
      EXPECT_TRUE(std::ranges::equal(losses.values(), other_losses.values()));
      EXPECT_EQ(other.doubles(), logits.doubles());
    }
}

// On a GPU, a block processes several rows and reads ahead if there are more rows than
// multiprocessors. The number of rows per block differs, and ignored rows lie between others.
TEST(CrossEntropy, RowsAreIndependent) {
  test::KernelStream stream;
  for (const Case& s : {Case{11, 252, 256, 15.0F, 4.0F}, Case{300, 252, 256, 0.0F, 4.0F},
                        Case{2500, 21, 24, 15.0F, 4.0F}, Case{301, 4100, 4120, 15.0F, 4.0F},
                        Case{134, 32768, 32768, 15.0F, 4.0F}, Case{134, 36000, 36008, 0.0F, 4.0F}})
    for (const bool write_gradient : {true, false}) {
      SCOPED_TRACE(concat(s.n, " rows, vocab ", s.vocab, " softcap ", s.softcap));
      const HostTensor targets =
          test::random_tokens(s.n, static_cast<std::int32_t>(s.vocab), "targets");
      for (std::int64_t i = 0; i < s.n; ++i)
        if (i == 0 || i == s.n - 1 || i % 7 < 3)
          targets.values<std::int32_t>()[static_cast<std::size_t>(i)] = -1;
      const HostTensor together =
          random_tensor({s.n, s.padded}, "logits", s.spread).rounded(DType::kBF16);
      const HostTensor apart = together.copy();
      const HostTensor losses({s.n});
      const HostTensor want({s.n});
      CrossEntropyArgs args{.losses = losses,
                            .logits = together,
                            .targets = targets,
                            .vocab = s.vocab,
                            .softcap = s.softcap,
                            .gradient_scale = write_gradient ? scalar() : Tensor{}};
      cross_entropy(stream, args);
      for (std::int64_t i = 0; i < s.n; ++i) {
        args.losses = want.tensor().rows(i, i + 1);
        args.logits = apart.tensor().rows(i, i + 1);
        args.targets = targets.tensor().rows(i, i + 1);
        cross_entropy(stream, args);
      }
      EXPECT_TRUE(std::ranges::equal(losses.values(), want.values()));
      if (write_gradient) {
        EXPECT_TRUE(together.doubles() == apart.doubles());
      }
    }
}

TEST(CrossEntropy, GradientAgreesWithFiniteDifferencesOfTheFloat64Loss) {
  test::KernelStream stream;
  for (const float softcap : {0.0F, 5.0F, 50.0F}) {
    constexpr std::int64_t kVocab = 21;
    const HostTensor original = random_tensor({1, kVocab}, "logits", 2.0F);
    const HostTensor logits = original.copy();
    const HostTensor targets({1}, std::vector<std::int32_t>{17});
    const HostTensor losses({1});
    cross_entropy(stream, {.losses = losses,
                           .logits = logits,
                           .targets = targets,
                           .vocab = kVocab,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    const double h = std::cbrt(test::kUnitF64);
    const std::vector<double> want = test::central_differences(
        [&](const std::vector<double>& x) { return reference_loss(x, 17, double{softcap}); },
        original.doubles(), h);
    EXPECT_LE(
        test::relative_error<float>(logits.values(), want),
        exponent_error({1, kVocab, kVocab, softcap, 2.0F}) + test::worst_case(10) + 100 * h * h);
  }
}

TEST(CrossEntropy, IgnoresPaddingColumns) {
  test::KernelStream stream;
  for (const float softcap : {0.0F, 15.0F, 60.0F}) {
    const HostTensor clean = random_tensor({2, 40}, "logits");
    const HostTensor dirty = clean.copy();
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 35; j < 40; ++j)
        dirty.values()[i * 40 + j] = std::numeric_limits<float>::quiet_NaN();
    const HostTensor targets({2}, std::vector<std::int32_t>{34, 0});
    const HostTensor a({2});
    const HostTensor b({2});
    cross_entropy(stream, {.losses = a,
                           .logits = clean,
                           .targets = targets,
                           .vocab = 35,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    cross_entropy(stream, {.losses = b,
                           .logits = dirty,
                           .targets = targets,
                           .vocab = 35,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    EXPECT_TRUE(std::ranges::equal(a.values(), b.values()));
    EXPECT_TRUE(std::ranges::equal(clean.values(), dirty.values()));
  }
}

TEST(CrossEntropy, IgnoredRowsHaveNoLossAndNoGradient) {
  test::KernelStream stream;
  const HostTensor logits = random_tensor({2, 40}, "logits");
  logits.values()[3] = std::numeric_limits<float>::quiet_NaN();
  const HostTensor targets({2}, std::vector<std::int32_t>{-1, 3});
  const HostTensor losses({2}, std::vector<float>{7.0F, 7.0F});
  cross_entropy(stream, {.losses = losses,
                         .logits = logits,
                         .targets = targets,
                         .vocab = 33,
                         .gradient_scale = scalar()});
  EXPECT_EQ(losses.values()[0], 0.0F);
  EXPECT_GT(losses.values()[1], 0.0F);
  EXPECT_THAT(logits.values().first(40), Each(0.0F));
}

TEST(CrossEntropy, WithoutGradientGivesTheSameLosses) {
  test::KernelStream stream;
  for (const float softcap : {0.0F, 15.0F, 60.0F}) {
    const HostTensor logits = random_tensor({3, 70}, "logits", 4.0F);
    const HostTensor targets({3}, std::vector<std::int32_t>{-1, 3, 65});
    const HostTensor a({3});
    const HostTensor b({3});
    cross_entropy(stream, {.losses = a,
                           .logits = logits.copy(),
                           .targets = targets,
                           .vocab = 66,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    cross_entropy(
        stream,
        {.losses = b, .logits = logits, .targets = targets, .vocab = 66, .softcap = softcap});
    EXPECT_TRUE(std::ranges::equal(a.values(), b.values()));
  }
}

TEST(CrossEntropy, SurvivesLargeLogits) {
  test::KernelStream stream;
  for (const float softcap : {0.0F, 15.0F, 60.0F, 1e6F}) {
    const HostTensor logits({1, 3}, std::vector<float>{1e4F, -1e4F, 1e4F});
    const HostTensor losses({1});
    cross_entropy(stream, {.losses = losses,
                           .logits = logits,
                           .targets = HostTensor({1}, std::vector<std::int32_t>{2}),
                           .vocab = 3,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    const std::vector<double> x = {1e4, -1e4, 1e4};
    EXPECT_NEAR(double{losses.values()[0]}, reference_loss(x, 2, double{softcap}),
                test::worst_case(8) * (1 + std::min(1e4, double{softcap})))
        << softcap;
    EXPECT_TRUE(std::isfinite(logits.values()[1])) << softcap;
  }
}

TEST(CrossEntropy, PropagatesNaN) {
  test::KernelStream stream;
  for (const float softcap : {0.0F, 15.0F, 60.0F}) {
    const HostTensor logits = random_tensor({1, 50}, "logits");
    logits.values()[10] = std::numeric_limits<float>::quiet_NaN();
    const HostTensor losses({1});
    cross_entropy(stream, {.losses = losses,
                           .logits = logits,
                           .targets = HostTensor({1}, std::vector<std::int32_t>{2}),
                           .vocab = 50,
                           .softcap = softcap,
                           .gradient_scale = scalar()});
    EXPECT_TRUE(std::isnan(losses.values()[0])) << softcap;
  }
}

TEST(SoftCap, AgreesWithFloat64) {
  test::KernelStream stream;
  const HostTensor logits = random_tensor({3, 37}, "logits", 20.0F);
  std::vector<double> want = logits.doubles();
  for (double& x : want)
    x = cap_of(x, 15.0);
  soft_cap(stream, {.logits = logits, .softcap = 15.0F});
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(double{logits.values()[i]}, want[i], test::worst_case(8) * std::abs(want[i]));
}

TEST(SoftCap, RoundsBF16Once) {
  test::KernelStream stream;
  const HostTensor logits = random_tensor({3, 37}, "logits", 20.0F).rounded(DType::kBF16);
  std::vector<double> want = logits.doubles();
  for (double& x : want)
    x = cap_of(x, 15.0);
  soft_cap(stream, {.logits = logits, .softcap = 15.0F});
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(logits.doubles()[i], want[i],
                (test::kUnitBF16 + test::worst_case(8)) * 1.01 * std::abs(want[i]));
}

TEST(SoftCap, AddressesDoNotMatter) {
  test::KernelStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const HostTensor logits = random_tensor({1030}, "logits", 20.0F).rounded(dtype);
    const test::Unaligned other(logits);
    soft_cap(stream, {.logits = logits, .softcap = 15.0F});
    soft_cap(stream, {.logits = other, .softcap = 15.0F});
    EXPECT_EQ(other.doubles(), logits.doubles());
  }
}

TEST(SoftCap, ZeroChangesNothing) {
  test::KernelStream stream;
  const HostTensor logits = random_tensor({37}, "logits", 20.0F);
  const HostTensor before = logits.copy();
  soft_cap(stream, {.logits = logits, .softcap = 0.0F});
  EXPECT_TRUE(std::ranges::equal(logits.values(), before.values()));
}

TEST(CrossEntropy, NamesATargetOutsideTheVocabulary) {
  test::KernelStream stream;
  if (!stream.is_host()) GTEST_SKIP() << "a kernel cannot throw: it prints a line and traps";
  const HostTensor logits({2, 8});
  const HostTensor targets({2}, std::vector<std::int32_t>{0, 5});
  EXPECT_THAT(test::message_of<Error>([&] {
                cross_entropy(
                    stream,
                    {.losses = HostTensor({2}), .logits = logits, .targets = targets, .vocab = 5});
              }),
              AllOf(HasSubstr("target 5 at position 1"), HasSubstr("outside [-1, 5)")));
}

TEST(CrossEntropy, ErrorsNameTheMismatch) {
  test::KernelStream stream;
  const HostTensor logits({2, 8});
  const HostTensor losses({2});
  const HostTensor targets({2}, std::vector<std::int32_t>{0, 5});
  const auto message = [&](const CrossEntropyArgs& args) {
    return test::message_of<Error>([&] { cross_entropy(stream, args); });
  };
  EXPECT_THAT(message({.losses = losses, .logits = logits, .targets = targets, .vocab = 9}),
              HasSubstr("cross_entropy: vocab 9 does not fit logits (2, 8)"));
  EXPECT_THAT(message({.losses = losses, .logits = logits, .targets = targets}),
              HasSubstr("cross_entropy: vocab 0"));
  EXPECT_THAT(
      message({.losses = losses, .logits = logits, .targets = targets, .vocab = 6, .softcap = -1}),
      HasSubstr("cross_entropy: softcap is negative"));
  EXPECT_THAT(
      message({.losses = HostTensor({3}), .logits = logits, .targets = targets, .vocab = 6}),
      HasSubstr("cross_entropy: losses is (3), expected (2)"));
}

}  // namespace
}  // namespace muo
