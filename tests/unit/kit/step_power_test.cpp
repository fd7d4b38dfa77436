#include "kit/plan/step_power.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace muo::kit {
namespace {

// A step of d12 with these seconds of work on tensor cores, at rate_clock, and of other work.
StepWork step_of(double products = 74e-3, double other = 17e-3) {
  return {.flops = 50e12, .bytes = 151e9, .seconds = [=](double stretch) {
            return stretch * products + other;
          }};
}

TEST(StepPower, IsTheLimitAtALowerClock) {
  const GpuRates h100 = gpu_rates("h100");
  const StepPower step = step_power(step_of(), h100);
  EXPECT_TRUE(step.is_at_limit);
  EXPECT_LT(step.clock, h100.max_clock);
  EXPECT_NEAR(step.seconds, 74e-3 * 1.9e9 / step.clock + 17e-3, 1e-9);
  EXPECT_NEAR(step.joules, 690 * step.seconds, 1e-6);
  const double joules =
      120 * step.seconds + 1.28e-12 * std::pow(step.clock / 1.9e9, 1.3) * 50e12 + 55e-12 * 151e9;
  EXPECT_NEAR(step.joules, joules, 1e-6);
}

TEST(StepPower, IsBelowTheLimitAtTheHighestClock) {
  GpuRates rates = gpu_rates("h100");
  rates.power_limit = 1000;
  const StepPower free = step_power(step_of(), rates);
  EXPECT_FALSE(free.is_at_limit);
  EXPECT_EQ(free.clock, 1.9e9);
  EXPECT_NEAR(free.seconds, 91e-3, 1e-12);
  EXPECT_LT(free.joules, 1000 * free.seconds);
  rates.max_clock = 1.2e9;
  EXPECT_NEAR(step_power(step_of(), rates).seconds, 74e-3 * 1.9 / 1.2 + 17e-3, 1e-12);
}

TEST(StepPower, IsNotLimitedWhereEnergiesAreNotKnown) {
  const StepPower step = step_power(step_of(), gpu_rates("a100"));
  EXPECT_FALSE(step.is_at_limit);
  EXPECT_EQ(step.clock, 1.41e9);
  EXPECT_EQ(step.joules, 0);
}

TEST(StepPower, MoreFlopsInTheSameTimeLowerTheClock) {
  const GpuRates h100 = gpu_rates("h100");
  double clock = h100.max_clock;
  for (StepWork work = step_of(); work.flops < 100e12; work.flops *= 1.1) {
    const StepPower step = step_power(work, h100);
    EXPECT_LT(step.clock, clock);
    clock = step.clock;
  }
}

// tests/bench/results/2026-11-27-h100-step.json: a removed pass gains less than its time, because
// the same products then take a larger share of it.
TEST(StepPower, ARemovedPassGainsTwoThirdsOfItsTime) {
  const GpuRates h100 = gpu_rates("h100");
  const double before = step_power(step_of(), h100).seconds, pass = 0.01 * before;
  StepWork work = step_of(74e-3, 17e-3 - pass);
  work.bytes -= 3e12 * pass;
  const double gain = 1 - step_power(work, h100).seconds / before;
  EXPECT_GT(gain, 0.006);
  EXPECT_LT(gain, 0.007);
}

std::vector<KernelPower> kernels_of(double idle, double flop, double byte) {
  std::vector<KernelPower> out = {{.clock = 1.5e9, .flops = 650e12, .bytes = 1e12},
                                  {.clock = 1.7e9, .flops = 700e12},
                                  {.clock = 1.9e9, .flops = 300e12, .bytes = 2e12},
                                  {.clock = 1.9e9, .bytes = 3e12},
                                  {.clock = 1.9e9, .bytes = 0.5e12}};
  for (KernelPower& kernel : out)
    kernel.watts =
        idle + flop * std::pow(kernel.clock / 1.9e9, 1.3) * kernel.flops + byte * kernel.bytes;
  return out;
}

TEST(FitPower, FindsTheEnergiesOfKernels) {
  GpuRates rates = gpu_rates("h100");
  fit_power(rates, kernels_of(90, 1.1e-12, 70e-12));
  EXPECT_NEAR(rates.idle_power, 90, 1e-6);
  EXPECT_NEAR(rates.joules_per_flop, 1.1e-12, 1e-20);
  EXPECT_NEAR(rates.joules_per_byte, 70e-12, 1e-18);
}

TEST(FitPower, FitsWhatTheKernelsDetermine) {
  const GpuRates h100 = gpu_rates("h100");
  const std::vector<KernelPower> all = kernels_of(h100.idle_power, 1.1e-12, h100.joules_per_byte);
  GpuRates rates = h100;
  fit_power(rates, std::span(all).first(2));
  EXPECT_NEAR(rates.joules_per_flop, 1.1e-12, 1e-20);
  EXPECT_EQ(rates.idle_power, h100.idle_power);
  EXPECT_EQ(rates.joules_per_byte, h100.joules_per_byte);
  rates = h100;
  fit_power(rates, std::span(all).last(2));
  EXPECT_EQ(rates.joules_per_flop, h100.joules_per_flop);
  EXPECT_EQ(rates.idle_power, h100.idle_power);
}

}  // namespace
}  // namespace muo::kit
