#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Where the time of a stream goes, as the work on it finds: no profiler, no host. In device memory;
// all zero before its first use.
struct PhaseClock {
  static constexpr int kPhases = 8;

  std::int64_t last = 0;               // of the device's clock, in ns; 0: there was no lap yet
  std::int64_t elapsed[kPhases] = {};  // ns
  std::int64_t laps[kPhases] = {};     // how many made up that time
  // Of it, on the host: what the rank's thread ran. Ranks may be more than cores. On a GPU: 0.
  std::int64_t thread_last = 0, thread[kPhases] = {};
};

// elapsed[phase] <- elapsed[phase] + the time since the lap before, of whatever phase. The first
// lap only starts the clock. Laps of one clock are ordered, as on one stream.
struct LapArgs {
  Tensor clock;  // PhaseClock
  int phase = 0;
};
void lap(Stream& stream, const LapArgs& args);

}  // namespace muo
