#pragma once

#include <functional>
#include <span>

#include "kit/plan/gpu_rates.h"

namespace muo::kit {

// The work of one GPU in a step that takes energy.
struct StepWork {
  double flops = 0;  // executed on tensor cores
  double bytes = 0;
  // Returns the step's seconds if work that depends on the clock takes `stretch` times as long as
  // at rate_clock. Does not decrease.
  std::function<double(double stretch)> seconds;
};
struct StepPower {
  double clock = 0;  // Hz
  double seconds = 0;
  double joules = 0;  // 0 if joules_per_flop is not known
  bool is_at_limit = false;
};
// Returns the step at the highest clock, up to max_clock, at which its mean power does not exceed
// power_limit; at max_clock if joules_per_flop is not known (0).
StepPower step_power(const StepWork& work, const GpuRates& rates);

// A kernel's measured power, and its work per second.
struct KernelPower {
  double watts = 0, clock = 0;
  double flops = 0, bytes = 0;
};
// Fits joules_per_flop, joules_per_byte and idle_power to kernels by least squares, with
// clock_exponent as given. Fits joules_per_flop alone if the kernels do not determine all three,
// and nothing if they do not determine it.
void fit_power(GpuRates& rates, std::span<const KernelPower> kernels);

}  // namespace muo::kit
