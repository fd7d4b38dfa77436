#include "kernels/operation.h"
#include "kernels/phase_clock.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/ptx.h"

namespace muo::cuda {
namespace {

// One thread, 48 bytes: bound by the latency of a launch, which counts towards the next phase.
__global__ void mark_phase_kernel(PhaseClock* clock, int phase) {
  const auto now = static_cast<std::int64_t>(global_timer_ns());
  if (clock->last != 0) {
    clock->elapsed[phase] += now - clock->last;
    ++clock->marks[phase];
  }
  clock->last = now;
}

void mark_phase(NativeStream stream, const MarkPhaseArgs& args) {
  launch(mark_phase_kernel, 1, 1, 0, stream, args.clock.as_struct<PhaseClock>(), args.phase);
}

const KernelRegistration registration(&mark_phase);

}  // namespace
}  // namespace muo::cuda
