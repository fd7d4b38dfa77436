#include "kernels/step_scalars.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "optim/optimizer_options.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

constexpr double kSixDigits = 0.5e-6;  // the tables are printed to six decimals

HyperParameters hyper_for(std::int64_t iterations) {
  return optim::make_hyper_parameters({}, {}, iterations);
}

TEST(Schedules, GoldenTableOfAThousandSteps) {
  struct Row {
    std::int64_t it;
    double multiplier, momentum, weight_decay;
  };
  const Row rows[] = {{0, 0.025000, 0.850000, 0.280000},   {39, 1.000000, 0.861700, 0.278950},
                      {100, 1.000000, 0.880000, 0.273148}, {350, 1.000000, 0.955000, 0.203559},
                      {351, 0.998538, 0.955300, 0.203166}, {399, 0.928385, 0.969700, 0.183680},
                      {400, 0.926923, 0.964615, 0.183262}, {500, 0.780769, 0.953846, 0.140000},
                      {750, 0.415385, 0.926923, 0.041005}, {999, 0.051462, 0.900108, 0.000001}};
  const HyperParameters hyper = hyper_for(1000);
  for (const Row& row : rows) {
    EXPECT_NEAR(lr_multiplier_at(hyper, row.it), row.multiplier, kSixDigits) << row.it;
    EXPECT_NEAR(muon_momentum_at(hyper, row.it), row.momentum, kSixDigits) << row.it;
    EXPECT_NEAR(muon_weight_decay_at(hyper, row.it), row.weight_decay, kSixDigits) << row.it;
  }
}

TEST(Schedules, WarmdownStepsRoundHalfToEven) {
  EXPECT_EQ(hyper_for(10).warmdown_steps, 6);
  EXPECT_EQ(hyper_for(30).warmdown_steps, 20);
  EXPECT_EQ(hyper_for(50).warmdown_steps, 32);
  EXPECT_EQ(hyper_for(1000).warmdown_steps, 650);
}

TEST(Schedules, WarmupWinsInShortRuns) {
  for (std::int64_t it = 0; it < 40; ++it)
    EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper_for(40), it), static_cast<double>(it + 1) / 40);
  EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper_for(60), 39), 1.0);
  EXPECT_NEAR(lr_multiplier_at(hyper_for(60), 40), 0.5372, 0.5e-4);  // printed to four decimals
  // N - W < 40 up to N = 112, so the warmdown has begun when the warmup ends.
  EXPECT_LT(lr_multiplier_at(hyper_for(112), 40), 1.0);
  EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper_for(116), 40), 1.0);
}

TEST(Schedules, MomentumRampWinsAndThenJumps) {
  for (const std::int64_t n : {401, 800, 1141}) {
    const HyperParameters hyper = hyper_for(n);
    EXPECT_GT(muon_momentum_at(hyper, 399), 0.9695) << n;  // the ramp, even during the warmdown
    // The warmdown has begun by step 400, so the peak is not held.
    EXPECT_LT(muon_momentum_at(hyper, 400), 0.97) << n;
  }
  EXPECT_DOUBLE_EQ(muon_momentum_at(hyper_for(1144), 400), 0.97);
}

TEST(Schedules, FinalValuesHoldBeyondTheHorizon) {
  const HyperParameters hyper = hyper_for(1000);
  for (const std::int64_t it : {1000, 1001, 5000}) {
    EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper, it), 0.05);
    EXPECT_DOUBLE_EQ(muon_momentum_at(hyper, it), 0.90);
    EXPECT_DOUBLE_EQ(muon_weight_decay_at(hyper, it), 0.0);
  }
  HyperParameters constant = hyper;
  constant.warmdown_steps = 0;
  constant.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(lr_multiplier_at(constant, 0), 1.0);
  EXPECT_DOUBLE_EQ(lr_multiplier_at(constant, 999), 1.0);
}

// The multiplier of a warm-down of which the share x is over, as the papers write it.
double fallen(WarmdownShape shape, double x, double end) {
  switch (shape) {
    case WarmdownShape::kLinear:
      return (1 - x) + x * end;
    case WarmdownShape::kCosine:
      return end + (1 - end) * (1 + std::cos(kPi * x)) / 2;
    default:
      return end + (1 - end) * (1 - std::sqrt(x));
  }
}

TEST(Schedules, WarmdownShapes) {
  for (int each = 0; each < 3; ++each)
    for (const double ratio : {0.2, 0.65, 1.0})
      for (const double end : {0.0, 0.05}) {
        const auto shape = static_cast<WarmdownShape>(each);
        HyperParameters hyper = optim::make_hyper_parameters(
            {.warmdown_ratio = ratio, .final_lr_frac = end, .warmdown_shape = shape}, {}, 1000);
        HyperParameters paced = hyper;
        for (std::int64_t it = 50; it <= 1000; ++it) {
          const double position = static_cast<double>(it) / 1000;
          const double x = std::max(0.0, (position - (1 - ratio)) / ratio);
          paced.pace = {.from = it, .position = position};
          // A square root near 1 - x = 0 doubles the number of lost bits.
          EXPECT_NEAR(lr_multiplier_at(hyper, it), fallen(shape, x, end), 1e-7) << it;
          EXPECT_NEAR(lr_multiplier_at(paced, it), fallen(shape, x, end), 1e-7) << it;
        }
        EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper, 5000), end);
      }
}

// A run of 100,000 steps whose warm-up and ramp are longer than their largest share.
HyperParameters paced(const Pace& pace) {
  HyperParameters hyper = hyper_for(100'000);
  hyper.warmup_steps = hyper.muon_momentum_ramp = 20'000;
  hyper.pace = pace;
  return hyper;
}

TEST(PacedSchedules, AreFunctionsOfThePosition) {
  for (const bool linear : {false, true})
    for (int i = 0; i <= 1000; ++i) {
      const double x = i / 1000.0;
      HyperParameters hyper = paced({.from = 0, .position = x});
      hyper.linear_weight_decay = linear ? 1 : 0;
      const double rise = std::min(1.0, x / 0.05);
      const double left = std::min(1.0, (1 - x) / 0.65);
      const double lr = x < 0.05 ? std::max(rise, 1 / 20e3) : left + (1 - left) * 0.05;
      EXPECT_NEAR(lr_multiplier_at(hyper, 0), lr, 1e-12) << x;
      const double momentum = x < 0.05 ? 0.85 + rise * 0.12 : 0.90 + left * 0.07;
      EXPECT_NEAR(muon_momentum_at(hyper, 0), momentum, 1e-12) << x;
      EXPECT_NEAR(muon_weight_decay_at(hyper, 0),
                  0.28 * (linear ? 1 - x : 0.5 * (1 + std::cos(kPi * x))), 1e-12)
          << x;
    }
}

TEST(PacedSchedules, AgreeWithTheStepsOfAnEvenPace) {
  for (const std::int64_t n : {1000, 5000, 100'000}) {
    const HyperParameters by_steps = hyper_for(n);
    HyperParameters by_pace = by_steps;
    by_pace.pace = {.from = 0, .per_step = 1 / static_cast<double>(n)};
    by_pace.iterations = std::int64_t{1} << 40;
    for (std::int64_t it = n / 20; it <= n + 1; it += n / 100) {
      if (it < 400 && n > 1000) continue;  // the ramp of the momentum
      EXPECT_NEAR(lr_multiplier_at(by_pace, it), lr_multiplier_at(by_steps, it), 1e-9) << it;
      EXPECT_NEAR(muon_weight_decay_at(by_pace, it), muon_weight_decay_at(by_steps, it), 1e-9);
      if (it >= 400) {
        EXPECT_NEAR(muon_momentum_at(by_pace, it), muon_momentum_at(by_steps, it), 1e-9) << it;
      }
    }
  }
}

// The warm-up and the ramp take their steps where these are fewer than 5 % of the run.
TEST(PacedSchedules, RiseBySteps) {
  HyperParameters hyper = paced({.from = 0, .per_step = 1e-5});
  hyper.warmup_steps = 40;
  hyper.muon_momentum_ramp = 400;
  for (const std::int64_t it : {0, 1, 20, 39})
    EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper, it), static_cast<double>(it + 1) / 40);
  EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper, 40), 1);
  EXPECT_DOUBLE_EQ(muon_momentum_at(hyper, 200), 0.91);
  EXPECT_DOUBLE_EQ(muon_momentum_at(hyper, 400), 0.97);
  hyper.warmup_steps = 0;
  hyper.muon_momentum_ramp = 0;
  EXPECT_DOUBLE_EQ(lr_multiplier_at(hyper, 0), 1);
  EXPECT_DOUBLE_EQ(muon_momentum_at(hyper, 0), 0.97);
}

TEST(PacedSchedules, PositionsStopAtTheEnd) {
  const Pace pace{.from = 10, .position = 0.5, .per_step = 0.125};
  EXPECT_EQ(pace.at(10), 0.5);
  EXPECT_EQ(pace.at(12), 0.75);
  EXPECT_EQ(pace.at(14), 1);
  EXPECT_EQ(pace.at(1000), 1);
}

struct DeviceStructs {
  HostTensor scalars{{static_cast<std::int64_t>(sizeof(StepScalars))}, DType::kBytes};
  HostTensor hyper{{static_cast<std::int64_t>(sizeof(HyperParameters))}, DType::kBytes};
  KernelStream stream;
  [[nodiscard]] StepScalars& s() const { return *scalars.tensor().as_struct<StepScalars>(); }
};

TEST(AdvanceStep, RoundsToFloatWhereTheKernelsRead) {
  DeviceStructs d;
  *d.hyper.tensor().as_struct<HyperParameters>() = hyper_for(1000);
  d.s() = StepScalars{};
  d.s().step = 399;
  d.s().updates = 397;  // two steps were not finite: Adam's t counts updates, schedules count steps
  advance_step(d.stream, {.scalars = d.scalars, .hyper = d.hyper});
  EXPECT_EQ(d.s().step, 399);
  EXPECT_EQ(d.s().updates, 397);
  EXPECT_NEAR(d.s().lr_multiplier, 0.928385, kSixDigits);
  EXPECT_LE(
      ulps_between(d.s().muon_momentum, static_cast<float>(muon_momentum_at(hyper_for(1000), 399))),
      1);
  EXPECT_EQ(d.s().adam[1].beta2, 0.995F);
  // The power is within 4 ulp on a GPU, and bitwise equal on the host.
  EXPECT_NEAR(d.s().adam[1].correction2, 1.0F - std::pow(0.995F, 398.0F),
              d.stream.is_host() ? 0.0 : worst_case(8));
  EXPECT_EQ(d.s().adam[1].lr, static_cast<float>(0.3 * lr_multiplier_at(hyper_for(1000), 399)));
  EXPECT_EQ(d.s().adam[1].weight_decay, 0.001F);  // not scheduled
}

TEST(AdvanceStep, KnowsEveryWarmdownShape) {
  for (int each = 0; each < 3; ++each) {
    DeviceStructs d;
    HyperParameters hyper = hyper_for(1000);
    hyper.warmdown_shape = static_cast<WarmdownShape>(each);
    *d.hyper.tensor().as_struct<HyperParameters>() = hyper;
    d.s() = StepScalars{};
    d.s().step = 600;
    advance_step(d.stream, {.scalars = d.scalars, .hyper = d.hyper});
    EXPECT_LE(ulps_between(d.s().lr_multiplier, static_cast<float>(lr_multiplier_at(hyper, 600))),
              d.stream.is_host() ? 0 : 1);
  }
}

TEST(FinishStep, CountsStepsAndUpdates) {
  DeviceStructs d;
  d.s() = StepScalars{};
  std::int64_t updates = 0;
  for (const int commit : {1, 0, 0, 1}) {
    d.s().commit = commit;
    const std::int64_t step = d.s().step;
    finish_step(d.stream, {.scalars = d.scalars});
    updates += commit;
    EXPECT_EQ(d.s().step, step + 1);
    EXPECT_EQ(d.s().updates, updates);
  }
}

}  // namespace
}  // namespace muo::test
