#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "app/bench/step_times.h"
#include "app/run/device_rates.h"
#include "app/run/run_config.h"

namespace muo::app {

// The rates with which operations of one host device are compared: large matrix products and copies
// from memory, while all devices work. Operations in caches may be faster. The rate of the run's
// dtype is the device's share of `peak`; the others are measured, each for at least `seconds`.
struct ReferenceRates {
  double fp32 = 0;   // FLOP/s of matrix products
  double bf16 = 0;   // likewise; 0 in a run in fp32
  double bytes = 0;  // per second, of copies
};
ReferenceRates measure_reference_rates(const RunConfig& run, const DevicePeak& peak,
                                       double seconds);

// Where the time of measured steps went, operation by operation, and the sums that matter.
// times.operations is not empty.
std::string operations_text(const RunConfig& run, const StepTimes& times, std::int64_t steps,
                            const ReferenceRates& reference);
nlohmann::ordered_json operations_json(const RunConfig& run, const StepTimes& times,
                                       std::int64_t steps, const ReferenceRates& reference);

}  // namespace muo::app
