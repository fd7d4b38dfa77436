#include "kernels/operation.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/launch.h"

namespace muo::cuda {
namespace {

// One thread per kernel: a few hundred bytes, bound by the latency of a launch and of memory.

__global__ void advance_step_kernel(StepScalars* scalars, const HyperParameters* hyper) {
  fill_step_scalars(*hyper, *scalars);
}

__global__ void finish_step_kernel(StepScalars* scalars) {
  ++scalars->step;
  scalars->updates += scalars->commit;
}

void advance_step(NativeStream stream, const AdvanceStepArgs& args) {
  launch(advance_step_kernel, 1, 1, 0, stream, args.scalars.as_struct<StepScalars>(),
         args.hyper.as_struct<HyperParameters>());
}

void finish_step(NativeStream stream, const FinishStepArgs& args) {
  launch(finish_step_kernel, 1, 1, 0, stream, args.scalars.as_struct<StepScalars>());
}

const KernelRegistration registration(&advance_step, &finish_step);

}  // namespace
}  // namespace muo::cuda
