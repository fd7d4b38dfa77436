#include "kernels/metrics.h"

#include "kernels/argument_check.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo {
namespace {
Operation<WriteMetricsArgs> operation("write_metrics");
}  // namespace

void write_metrics(Stream& stream, const WriteMetricsArgs& args) {
  static_cast<void>(args.scalars.as_struct<StepScalars>());
  static_cast<void>(args.ring.as_struct<MetricsRecord>());
  ArgumentCheck("write_metrics").rank("totals", args.totals, 1, "(2 + world)", DType::kF64);
  operation.submit(stream, args, {.writes = {args.ring}, .reads = {args.totals, args.scalars}});
}

}  // namespace muo
