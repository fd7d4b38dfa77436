#include "kernels/step_scalars.h"

#include "kernels/operation.h"

namespace muo {
namespace {
Operation<AdvanceStepArgs> advance("advance_step");
Operation<FinishStepArgs> finish("finish_step");
}  // namespace

void advance_step(Stream& stream, const AdvanceStepArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  static_cast<void>(args.hyper.as_struct<HyperParameters>());
  advance.submit(stream, args, {.writes = {args.scalars}, .reads = {args.hyper}});
}

void finish_step(Stream& stream, const FinishStepArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  finish.submit(stream, args, {.writes = {args.scalars}, .reads = {}});
}

}  // namespace muo
