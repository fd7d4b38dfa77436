#include "kernels/metrics.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {
Operation<WriteMetricsArgs> operation("write_metrics");
}  // namespace

void write_metrics(Stream& stream, const WriteMetricsArgs& args) {
  ArgumentCheck check("write_metrics");
  check.holds<StepScalars>("scalars", args.scalars);
  check.rank("totals", args.totals, 1, "(2 + world)", DType::kF64);
  static_cast<void>(args.ring.as_struct<MetricsRecord>());  // pinned: its device is not checked
  if (args.squares) {
    check.rank("squares", args.squares, 2, "(params, 3)", DType::kF64);
    check.that(args.squares_ring.dtype == DType::kF64 &&
                   args.squares_ring.numel() == metrics_slots(args.ring) * args.squares.numel(),
               "squares_ring and ring have different numbers of slots");
  }
  operation.submit(stream, args,
                   {.writes = {args.ring, args.squares_ring},
                    .reads = {args.totals, args.scalars, args.squares}});
}

}  // namespace muo
