#include "kernels/adamw.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {
Operation<AdamwArgs> operation("adamw");
}  // namespace

void adamw(Stream& stream, const AdamwArgs& args) {
  ArgumentCheck check("adamw");
  check.holds<StepScalars>("scalars", args.scalars);
  check.master(args.weight, args.replica);
  check.fp32_or_bf16("m", args.m, args.weight.shape);
  check.tensor("v", args.v, args.weight.shape, args.m.dtype);
  check.fp32_or_bf16("grad", args.grad, args.weight.shape);
  check.no_overlap("weight", args.weight, "grad", args.grad);
  check.that(!args.rounding || args.m.dtype == DType::kBF16,
             "rounding is given, but moments are fp32");
  check.update_squares(args.squares, args.weight.numel());
  check.that(0 <= args.group && args.group < kMaxAdamGroups, "group is out of range");
  const bool split = args.weight.dtype == DType::kU16;
  operation.submit(stream, args,
                   {.writes = {split ? Tensor{} : args.replica, args.squares},
                    .updates = {args.weight, args.m, args.v, split ? args.replica : Tensor{}},
                    .reads = {args.grad, args.scalars}});
}

}  // namespace muo
