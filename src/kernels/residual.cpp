#include "kernels/residual.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {

Operation<MixNormArgs> forward("mix_norm");
Operation<MixNormBackwardArgs> backward("mix_norm_backward");
Operation<AddArgs> addition("add");

}  // namespace

void mix_norm(Stream& stream, const MixNormArgs& args) {
  ArgumentCheck check("mix_norm");
  check.rank("x", args.x, 2, "(n, c)", args.x.dtype);
  check.tensor("y", args.y, args.x.shape, args.x.dtype);
  check.tensor("rstd", args.rstd, {args.x.shape[0]});
  check.no_overlap("y", args.y, "x", args.x);
  if (args.mixed) {
    check.tensor("mixed", args.mixed, args.x.shape, args.x.dtype);
    check.same_or_no_overlap("mixed", args.mixed, "x", args.x);
    check.no_overlap({{"mixed", args.mixed}},
                     {{"y", args.y}, {"z", args.beta ? args.z : Tensor{}}});
  }
  check.that(args.alpha || args.beta, "neither alpha nor beta is given: use rms_norm");
  if (args.alpha) check.tensor("alpha", args.alpha, {1});
  if (args.beta) {
    check.tensor("beta", args.beta, {1});
    check.tensor("z", args.z, args.x.shape, args.x.dtype);
    check.no_overlap("y", args.y, "z", args.z);
  }
  forward.submit(stream, args,
                 {.writes = {args.y, args.rstd, args.mixed},
                  .reads = {args.x, args.beta ? args.z : Tensor{}, args.alpha, args.beta}});
}

void mix_norm_backward(Stream& stream, const MixNormBackwardArgs& args) {
  ArgumentCheck check("mix_norm_backward");
  check.fp32_or_bf16("dx", args.dx, 2, "(n, c)");
  check.tensor("dy", args.dy, args.dx.shape, args.dx.dtype);
  check.tensor("rstd", args.rstd, {args.dx.shape[0]});
  check.that(args.alpha || args.beta, "neither alpha nor beta is given: use rms_norm_backward");
  const Tensor none;
  const Tensor& x = args.alpha ? args.x : none;
  const Tensor& y = args.alpha ? none : args.y;
  const Tensor& z = args.beta ? args.z : none;
  const Tensor& dz = args.beta ? args.dz : none;
  check.no_overlap({{"dx", args.dx}, {"dz", dz}}, {{"dy", args.dy}, {"x", x}, {"z", z}});
  if (args.alpha) {
    check.tensor("alpha", args.alpha, {1});
    check.tensor("dalpha", args.dalpha, {1});
    check.tensor("x", x, args.dx.shape, args.dx.dtype);
  } else {
    check.tensor("y", y, args.dx.shape, args.dx.dtype);
  }
  if (args.beta) {
    check.tensor("beta", args.beta, {1});
    check.tensor("dbeta", args.dbeta, {1});
    check.tensor("z", z, args.dx.shape, args.dx.dtype);
    check.tensor("dz", dz, args.dx.shape, args.dx.dtype);
    check.no_overlap("dx", args.dx, "dz", dz);
  }
  backward.submit(stream, args,
                  {.writes = {args.add_dx ? none : args.dx, args.add_dz ? none : dz,
                              args.alpha ? args.dalpha : none, args.beta ? args.dbeta : none},
                   .updates = {args.add_dx ? args.dx : none, args.add_dz ? dz : none},
                   .reads = {args.dy, y, args.rstd, x, z, args.alpha, args.beta}});
}

void add(Stream& stream, const AddArgs& args) {
  ArgumentCheck check("add");
  check.any_shape("y", args.y, args.y.dtype);
  check.tensor("x", args.x, args.y.shape, args.y.dtype);
  check.no_overlap("y", args.y, "x", args.x);
  addition.submit(stream, args, {.writes = {}, .updates = {args.y}, .reads = {args.x}});
}

}  // namespace muo
