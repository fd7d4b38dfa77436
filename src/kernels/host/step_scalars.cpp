#include "kernels/step_scalars_impl.h"

namespace muo::host {

void advance_step(const AdvanceStepArgs& args) {
  fill_step_scalars(*args.hyper.as_struct<HyperParameters>(),
                    *args.scalars.as_struct<StepScalars>());
}

void finish_step(const FinishStepArgs& args) {
  auto* scalars = args.scalars.as_struct<StepScalars>();
  ++scalars->step;
  scalars->updates += scalars->commit;
}

}  // namespace muo::host
