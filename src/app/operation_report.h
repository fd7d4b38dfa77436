#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "app/run_config.h"
#include "app/step_times.h"

namespace muo {

// What bounds the operations of one device, while all of them work; each measured for at least
// `seconds`.
struct Ceilings {
  double fp32 = 0;   // FLOP/s of matrix products
  double bf16 = 0;   // likewise; 0 in a run in fp32
  double bytes = 0;  // per second, of copies
};
Ceilings measure_ceilings(const RunConfig& run, double seconds);

// Where the time of measured steps went, operation by operation, and the sums that matter.
// times.operations is not empty.
std::string operations_text(const RunConfig& run, const StepTimes& times, std::int64_t steps,
                            const Ceilings& ceilings);
nlohmann::ordered_json operations_json(const RunConfig& run, const StepTimes& times,
                                       std::int64_t steps, const Ceilings& ceilings);

}  // namespace muo
