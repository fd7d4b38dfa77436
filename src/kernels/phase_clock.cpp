#include "kernels/phase_clock.h"

#include "base/check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<LapArgs> operation("lap");
}  // namespace

void lap(Stream& stream, const LapArgs& args) {
  static_cast<void>(args.clock.as_struct<PhaseClock>());
  MUO_CHECK(0 <= args.phase && args.phase < PhaseClock::kPhases, "lap: phase ", args.phase, " of ",
            PhaseClock::kPhases);
  operation.submit(stream, args, {.writes = {args.clock}, .reads = {}});
}

}  // namespace muo
