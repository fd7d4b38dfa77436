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
  check.any_shape("weight", args.weight);
  check.fp32_or_bf16("m", args.m, args.weight.shape);
  check.tensor("v", args.v, args.weight.shape, args.m.dtype);
  if (args.replica) check.tensor("replica", args.replica, args.weight.shape, DType::kBF16);
  check.tensor("grad", args.grad, args.weight.shape);
  check.apart("weight", args.weight, "grad", args.grad);
  check.that(0 <= args.group && args.group < kMaxAdamGroups, "group is out of range");
  operation.submit(stream, args,
                   {.writes = {args.replica},
                    .updates = {args.weight, args.m, args.v},
                    .reads = {args.grad, args.scalars}});
}

}  // namespace muo
