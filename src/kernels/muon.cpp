#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/argument_check.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {

Operation<MuonNesterovArgs> nesterov_operation("muon_nesterov");
Operation<MuonInputArgs> input_operation("muon_input");
Operation<MuonScaleArgs> scale_operation("muon_scale");
Operation<MuonCommitArgs> commit_operation("muon_commit");

}  // namespace

double muon_rate(std::int64_t rows, std::int64_t columns) {
  return std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
}

void muon_nesterov(Stream& stream, const MuonNesterovArgs& args) {
  ArgumentCheck check("muon_nesterov");
  check.holds<StepScalars>("scalars", args.scalars);
  check.fp32_or_bf16_count("grad", args.grad, args.x.numel());
  check.fp32_or_bf16_count("momentum", args.momentum, args.x.numel());
  check.no_overlap("x", args.x, "grad", args.grad);
  nesterov_operation.submit(
      stream, args, {.writes = {args.x}, .reads = {args.grad, args.momentum, args.scalars}});
}

void muon_input(Stream& stream, const MuonInputArgs& args) {
  ArgumentCheck check("muon_input");
  check.holds<StepScalars>("scalars", args.scalars);
  check.fp32_or_bf16("x", args.x, 3, "(k, R, C)");
  check.fp32_or_bf16_count("grad", args.grad, args.x.numel());
  if (args.momentum) check.fp32_or_bf16_count("momentum", args.momentum, args.x.numel());
  check.count("row_norms", args.row_norms, args.x.shape[0] * args.x.shape[1]);
  check.no_overlap("x", args.x, "grad", args.grad);
  input_operation.submit(
      stream, args,
      {.writes = {args.x, args.row_norms}, .reads = {args.grad, args.momentum, args.scalars}});
}

void muon_scale(Stream& stream, const MuonScaleArgs& args) {
  ArgumentCheck check("muon_scale");
  check.holds<StepScalars>("scalars", args.scalars);
  check.rank("u", args.u, 3, "(k, R, C)");
  check.fp32_or_bf16("x", args.x, args.u.shape);
  if (args.x.dtype == DType::kF32)
    check.same_or_no_overlap("x", args.x, "u", args.u);
  else
    check.no_overlap("x", args.x, "u", args.u);
  const std::int64_t n = args.u.shape[0] * std::max(args.u.shape[1], args.u.shape[2]);
  check.count("variance", args.variance, n);
  check.count("new_variance", args.new_variance, n);
  check.no_overlap("new_variance", args.new_variance, "variance", args.variance);
  scale_operation.submit(
      stream, args,
      {.writes = {args.u, args.new_variance}, .reads = {args.x, args.variance, args.scalars}});
}

void muon_commit(Stream& stream, const MuonCommitArgs& args) {
  ArgumentCheck check("muon_commit");
  check.holds<StepScalars>("scalars", args.scalars);
  check.that(args.weight || args.variance, "neither weight nor variance is given");
  if (args.weight) {
    const std::int64_t n = args.weight.numel();
    check.fp32_or_bf16_count("momentum", args.momentum, n);
    check.count("u", args.u, n);
    check.fp32_or_bf16_count("grad", args.grad, n);
    check.master(args.weight, args.replica);
    check.update_squares(args.squares, n);
  }
  if (args.variance) check.count("new_variance", args.new_variance, args.variance.numel());
  check.no_overlap({{"weight", args.weight}}, {{"grad", args.grad}, {"u", args.u}});
  const bool split = args.weight.dtype == DType::kU16;
  commit_operation.submit(stream, args,
                          {.writes = {split ? Tensor{} : args.replica, args.variance, args.squares},
                           .updates = {args.weight, args.momentum, split ? args.replica : Tensor{}},
                           .reads = {args.u, args.grad, args.new_variance, args.scalars}});
}

}  // namespace muo
