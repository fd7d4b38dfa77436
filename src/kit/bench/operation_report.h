#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "kit/bench/step_times.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/run_config.h"

namespace muo::kit {

// Rates of one host device with which its operations are compared, measured while all devices work:
// large matrix products, and copies from memory. Operations on cached data may be faster.
struct ReferenceRates {
  double fp32 = 0;   // FLOP/s of matrix products
  double bf16 = 0;   // FLOP/s of matrix products; 0 if the run computes in fp32
  double bytes = 0;  // bytes/s of copies
};
// The rate for the run's dtype is the device's share of `peak`; the other rates are measured, each
// for at least `seconds`.
ReferenceRates measure_reference_rates(const trainer::RunConfig& run,
                                       const trainer::DevicePeak& peak, double seconds);

// A table of the time of the measured steps by operation, with sums by kind. Precondition:
// times.operations is not empty.
std::string operations_text(const trainer::RunConfig& run, const StepTimes& times,
                            std::int64_t steps, const ReferenceRates& reference);
nlohmann::ordered_json operations_json(const trainer::RunConfig& run, const StepTimes& times,
                                       std::int64_t steps, const ReferenceRates& reference);

}  // namespace muo::kit
