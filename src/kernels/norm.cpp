#include "kernels/norm.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<RmsNormArgs> forward("rms_norm");
Operation<RmsNormBackwardArgs> backward("rms_norm_backward");

}  // namespace

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  ArgumentCheck check("rms_norm");
  check.fp32_or_bf16("x", args.x, 2, "(n, c)");
  check.tensor("y", args.y, args.x.shape, args.x.dtype);
  check.tensor("rstd", args.rstd, {args.x.shape[0]});
  check.same_or_no_overlap("y", args.y, "x", args.x);
  check.no_overlap({{"rstd", args.rstd}}, {{"x", args.x}, {"y", args.y}});
  forward.submit(stream, args, {.writes = {args.y, args.rstd}, .reads = {args.x}});
}

void rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args) {
  ArgumentCheck check("rms_norm_backward");
  check.fp32_or_bf16("y", args.y, 2, "(n, c)");
  check.tensor("dx", args.dx, args.y.shape, args.y.dtype);
  check.tensor("dy", args.dy, args.y.shape, args.y.dtype);
  check.tensor("rstd", args.rstd, {args.y.shape[0]});
  check.same_or_no_overlap("dx", args.dx, "dy", args.dy);
  check.no_overlap({{"dx", args.dx}}, {{"y", args.y}, {"rstd", args.rstd}});
  const Tensor none;
  backward.submit(stream, args,
                  {.writes = {args.accumulate ? none : args.dx},
                   .updates = {args.accumulate ? args.dx : none},
                   .reads = {args.dy, args.y, args.rstd}});
}

}  // namespace muo
