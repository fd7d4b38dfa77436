#include "kernels/phase_clock.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<MarkPhaseArgs> operation("mark_phase");
}  // namespace

void mark_phase(Stream& stream, const MarkPhaseArgs& args) {
  ArgumentCheck("mark_phase").holds<PhaseClock>("clock", args.clock);
  MUO_CHECK(0 <= args.phase && args.phase < PhaseClock::kPhases, "mark_phase: phase ", args.phase,
            " of ", PhaseClock::kPhases);
  operation.submit(stream, args, {.writes = {args.clock}, .reads = {}});
}

}  // namespace muo
