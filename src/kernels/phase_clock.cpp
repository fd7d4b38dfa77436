#include "kernels/phase_clock.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<LapArgs> operation("lap");
}  // namespace

void lap(Stream& stream, const LapArgs& args) {
  ArgumentCheck("lap").holds<PhaseClock>("clock", args.clock);
  MUO_CHECK(0 <= args.phase && args.phase < PhaseClock::kPhases, "lap: phase ", args.phase, " of ",
            PhaseClock::kPhases);
  operation.submit(stream, args, {.writes = {args.clock}, .reads = {}});
}

}  // namespace muo
