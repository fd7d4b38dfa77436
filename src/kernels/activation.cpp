#include "kernels/activation.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<ReluSquaredArgs> forward("relu_squared");
Operation<ReluSquaredBackwardArgs> backward("relu_squared_backward");

}  // namespace

void relu_squared(Stream& stream, const ReluSquaredArgs& args) {
  ArgumentCheck check("relu_squared");
  check.fp32_or_bf16("x", args.x);
  check.tensor("y", args.y, args.x.shape, args.x.dtype);
  check.same_or_no_overlap("y", args.y, "x", args.x);
  forward.submit(stream, args, {.writes = {args.y}, .reads = {args.x}});
}

void relu_squared_backward(Stream& stream, const ReluSquaredBackwardArgs& args) {
  ArgumentCheck check("relu_squared_backward");
  check.fp32_or_bf16("y", args.y);
  check.tensor("dx", args.dx, args.y.shape, args.y.dtype);
  check.tensor("dy", args.dy, args.y.shape, args.y.dtype);
  check.same_or_no_overlap("dx", args.dx, "dy", args.dy);
  check.no_overlap("dx", args.dx, "y", args.y);
  backward.submit(stream, args, {.writes = {args.dx}, .reads = {args.dy, args.y}});
}

}  // namespace muo
