#include "kernels/step_scalars.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<AdvanceStepArgs> advance("advance_step");
Operation<FinishStepArgs> finish("finish_step");
}  // namespace

void advance_step(Stream& stream, const AdvanceStepArgs& args) {
  ArgumentCheck check("advance_step");
  check.holds<StepScalars>("scalars", args.scalars);
  check.holds<HyperParameters>("hyper", args.hyper);
  advance.submit(stream, args, {.writes = {args.scalars}, .reads = {args.hyper}});
}

void finish_step(Stream& stream, const FinishStepArgs& args) {
  ArgumentCheck("finish_step").holds<StepScalars>("scalars", args.scalars);
  finish.submit(stream, args, {.writes = {args.scalars}, .reads = {}});
}

}  // namespace muo
