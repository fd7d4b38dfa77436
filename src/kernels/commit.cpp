#include "kernels/commit.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"

namespace muo {
namespace {
Operation<AgreeCommitArgs> agree("agree_commit");
Operation<NoteNonfiniteArgs> note("note_nonfinite");
}  // namespace

void agree_commit(Stream& stream, const AgreeCommitArgs& args) {
  ArgumentCheck check("agree_commit");
  check.holds<StepScalars>("scalars", args.scalars);
  check.holds<LossStatistics>("statistics", args.statistics);
  check.holds<HyperParameters>("hyper", args.hyper);
  check.rank("totals", args.totals, 1, "(2 + world)", DType::kF64);
  check.that(args.totals.numel() > kRankIndices, "totals has no element for a rank");
  agree.submit(stream, args,
               {.writes = {args.scalars, args.statistics}, .reads = {args.hyper, args.totals}});
}

void note_nonfinite(Stream& stream, const NoteNonfiniteArgs& args) {
  ArgumentCheck check("note_nonfinite");
  check.tensor("found", args.found, {}, DType::kF64);
  check.fp32_or_bf16("x", args.x);
  if (args.squares) check.tensor("squares", args.squares, {}, DType::kF64);
  check.that(args.base >= 0 && args.stride > 0, "base is negative or stride is not positive");
  if (args.x.numel() == 0) return;
  note.submit(stream, args, {.writes = {args.found}, .reads = {args.x, args.squares}});
}

}  // namespace muo
