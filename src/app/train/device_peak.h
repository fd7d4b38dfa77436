#pragma once

#include <string>

#include "app/train/run_config.h"

namespace muo {

// What the utilisation of a run is a share of: FLOP/s of all its devices together. Of GPUs what
// their maker states, in bf16; of a host, which no table has, what it reaches in matrix products of
// the run's dtype, measured now for at least `seconds`.
struct DevicePeak {
  double flops = 0;  // 0: unknown
  std::string text;  // the figure and where it comes from, or why there is none
};
DevicePeak peak_of(const RunConfig& config, double seconds = 0);

}  // namespace muo
