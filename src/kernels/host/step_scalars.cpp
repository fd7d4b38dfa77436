#include "kernels/step_scalars.h"

#include "kernels/operation.h"

namespace muo::host {
namespace {

void advance_step(const AdvanceStepArgs& args) {
  fill_step_scalars(*args.hyper.as_struct<HyperParameters>(),
                    *args.scalars.as_struct<StepScalars>());
}

void finish_step(const FinishStepArgs& args) {
  auto* scalars = args.scalars.as_struct<StepScalars>();
  ++scalars->step;
  scalars->updates += scalars->commit;
}

const KernelRegistration kRegistration(&advance_step, &finish_step);

}  // namespace
}  // namespace muo::host
