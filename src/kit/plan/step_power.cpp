#include "kit/plan/step_power.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace muo::kit {
namespace {

// Energy of a FLOP at this clock, as a multiple of that at rate_clock.
double energy_factor(double clock, const GpuRates& rates) {
  return std::pow(clock / rates.rate_clock, rates.clock_exponent);
}

using Vector = std::array<double, 3>;

double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
double determinant(const Vector& a, const Vector& b, const Vector& c) {
  return dot(a, {b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]});
}

}  // namespace

StepPower step_power(const StepWork& work, const GpuRates& rates) {
  const auto at = [&](double clock) {
    const double seconds = work.seconds(rates.rate_clock / clock);
    return StepPower{.clock = clock,
                     .seconds = seconds,
                     .joules = rates.idle_power * seconds +
                               rates.joules_per_flop * energy_factor(clock, rates) * work.flops +
                               rates.joules_per_byte * work.bytes};
  };
  StepPower out = at(rates.max_clock);
  if (rates.joules_per_flop == 0) {
    out.joules = 0;
    return out;
  }
  const auto fits = [&](const StepPower& step) {
    return step.joules <= rates.power_limit * step.seconds;
  };
  if (fits(out)) return out;
  // The lower the clock, the longer the step and the less energy beyond idle_power it takes.
  constexpr int kBisections = 40;
  double low = 0, high = rates.max_clock;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (fits(at(middle)) ? low : high) = middle;
  }
  out = at(high);
  out.is_at_limit = true;
  return out;
}

void fit_power(GpuRates& rates, std::span<const KernelPower> kernels) {
  // watts = idle_power + joules_per_flop * factor * flops + joules_per_byte * bytes
  std::array<Vector, 3> products{};  // of the terms with each other, summed over kernels
  Vector watts{};                    // of the terms with the watts
  for (const KernelPower& kernel : kernels) {
    const Vector terms = {1, energy_factor(kernel.clock, rates) * kernel.flops, kernel.bytes};
    for (std::size_t i = 0; i < 3; ++i) {
      watts[i] += terms[i] * kernel.watts;
      for (std::size_t j = 0; j < 3; ++j)
        products[i][j] += terms[i] * terms[j];
    }
  }
  if (products[1][1] == 0) return;
  const auto& [ones, flops, bytes] = products;
  const double all = determinant(ones, flops, bytes);
  // `all` over the product of the squares: 1 if the terms are orthogonal, 0 if dependent.
  constexpr double kMinIndependence = 1e-3;
  if (all > kMinIndependence * ones[0] * flops[1] * bytes[2]) {
    const Vector fitted = {determinant(watts, flops, bytes) / all,
                           determinant(ones, watts, bytes) / all,
                           determinant(ones, flops, watts) / all};
    if (fitted[0] > 0 && fitted[0] < rates.power_limit && fitted[1] > 0 && fitted[2] > 0) {
      rates.idle_power = fitted[0];
      rates.joules_per_flop = fitted[1];
      rates.joules_per_byte = fitted[2];
      return;
    }
  }
  const double rest = watts[1] - rates.idle_power * flops[0] - rates.joules_per_byte * flops[2];
  if (rest > 0) rates.joules_per_flop = rest / flops[1];
}

}  // namespace muo::kit
