#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/muon_impl.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {

Operation<MuonNesterovArgs> kMuonNesterov("muon_nesterov", host::muon_nesterov);
Operation<MuonInputArgs> kMuonInput("muon_input", host::muon_input);
Operation<MuonScaleArgs> kMuonScale("muon_scale", host::muon_scale);
Operation<MuonCommitArgs> kMuonCommit("muon_commit", host::muon_commit);

void check_numel(const Tensor& t, std::int64_t n, const char* what) {
  MUO_CHECK(t && t.dtype == DType::kF32 && t.numel() == n, what, " has ", t.numel(), " of ", n,
            " elements");
}

}  // namespace

double muon_rate(std::int64_t rows, std::int64_t columns) {
  return std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
}

void muon_nesterov(Stream& stream, const MuonNesterovArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  check_numel(args.grad, args.x.numel(), "grad");
  check_numel(args.momentum, args.x.numel(), "momentum");
  kMuonNesterov.submit(stream, args,
                       {.writes = {args.x}, .reads = {args.grad, args.momentum, args.scalars}});
}

void muon_input(Stream& stream, const MuonInputArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  MUO_CHECK(args.x.shape.rank() == 3, args.x.shape.text());
  check_numel(args.grad, args.x.numel(), "grad");
  if (args.momentum) check_numel(args.momentum, args.x.numel(), "momentum");
  check_numel(args.row_norms, args.x.shape[0] * args.x.shape[1], "row_norms");
  kMuonInput.submit(
      stream, args,
      {.writes = {args.x, args.row_norms}, .reads = {args.grad, args.momentum, args.scalars}});
}

void muon_scale(Stream& stream, const MuonScaleArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  MUO_CHECK(args.u.shape.rank() == 3, args.u.shape.text());
  const std::int64_t n = args.u.shape[0] * std::max(args.u.shape[1], args.u.shape[2]);
  check_numel(args.variance, n, "variance");
  check_numel(args.new_variance, n, "new_variance");
  kMuonScale.submit(
      stream, args,
      {.writes = {args.u, args.new_variance}, .reads = {args.variance, args.scalars}});
}

void muon_commit(Stream& stream, const MuonCommitArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  MUO_CHECK(args.weight || args.variance, "muon_commit of nothing");
  if (args.weight) {
    const std::int64_t n = args.weight.numel();
    check_numel(args.momentum, n, "momentum");
    check_numel(args.u, n, "u");
    check_numel(args.grad, n, "grad");
  }
  if (args.variance) check_numel(args.new_variance, args.variance.numel(), "new_variance");
  kMuonCommit.submit(stream, args,
                     {.writes = {args.weight, args.momentum, args.variance},
                      .reads = {args.u, args.grad, args.new_variance, args.scalars}});
}

}  // namespace muo
