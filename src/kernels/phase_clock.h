#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Time that a stream spends in each phase, measured by kernels on the stream itself, without a
// profiler or the host. It is in device memory, and must be all zero before its first use.
struct PhaseClock {
  static constexpr int kPhases = 8;

  std::int64_t last = 0;               // device time of the last mark, in ns; 0: no mark yet
  std::int64_t elapsed[kPhases] = {};  // ns
  std::int64_t marks[kPhases] = {};    // marks counted in `elapsed`
  // CPU time of the rank's thread in ns, on the host, where there may be more ranks than
  // cores; 0 on a GPU.
  std::int64_t thread_last = 0, thread[kPhases] = {};
};

// elapsed[phase] += the time since the clock's previous mark, whatever the phase of that mark. The
// first mark only starts the clock. Marks of one clock must be ordered, e.g. by one stream.
struct MarkPhaseArgs {
  Tensor clock;  // PhaseClock
  int phase = 0;
};
void mark_phase(Stream& stream, const MarkPhaseArgs& args);

}  // namespace muo
