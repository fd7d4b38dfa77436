#include <chrono>

#include "kernels/phase_clock_impl.h"

namespace muo::host {

void lap(const LapArgs& args) {
  auto& clock = *args.clock.as_struct<PhaseClock>();
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::steady_clock::now().time_since_epoch())
                               .count();
  if (clock.last != 0) {
    clock.elapsed[args.phase] += now - clock.last;
    ++clock.laps[args.phase];
  }
  clock.last = now;
}

}  // namespace muo::host
