#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Time that a stream spends in each phase, measured by kernels on the stream itself, without a
// profiler or the host. In device memory; all zero before its first use.
struct PhaseClock {
  static constexpr int kPhases = 8;

  std::int64_t last = 0;               // device time of the last mark, in ns; 0: no mark yet
  std::int64_t elapsed[kPhases] = {};  // ns
  std::int64_t marks[kPhases] = {};    // marks counted in `elapsed`
  // CPU time of the rank's thread in ns, on the host, where ranks may outnumber cores; 0 on a GPU.
  std::int64_t thread_last = 0, thread[kPhases] = {};
};

// elapsed[phase] += the time since the clock's previous mark, whatever its phase. The first mark
// only starts the clock. Marks of one clock must be ordered, e.g. by one stream.
struct MarkPhaseArgs {
  Tensor clock;  // PhaseClock
  int phase = 0;
};
void mark_phase(Stream& stream, const MarkPhaseArgs& args);

}  // namespace muo
