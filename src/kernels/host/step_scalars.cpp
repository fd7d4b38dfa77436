#include <cmath>

#include "kernels/step_scalars_impl.h"

namespace muo::host {

void advance_step(const AdvanceStepArgs& args) {
  fill_step_scalars(*args.hyper.as_struct<HyperParameters>(),
                    *args.scalars.as_struct<StepScalars>());
}

void agree_commit(const AgreeCommitArgs& args) {
  const auto* totals = args.totals.as<double>();
  bool finite = true;
  for (std::int64_t i = 0; i < args.totals.numel(); ++i)
    finite = finite && std::isfinite(totals[i]);
  args.scalars.as_struct<StepScalars>()->commit = finite ? 1 : 0;
}

void finish_step(const FinishStepArgs& args) {
  auto* scalars = args.scalars.as_struct<StepScalars>();
  ++scalars->step;
  scalars->updates += scalars->commit;
}

}  // namespace muo::host
