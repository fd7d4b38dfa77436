#include "kernels/metrics.h"

#include <algorithm>
#include <atomic>

#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {
namespace {

void write_metrics(const WriteMetricsArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  const std::int64_t slot = scalars->step % metrics_slots(args.ring);
  MetricsRecord& record = args.ring.as_struct<MetricsRecord>()[slot];
  std::atomic_ref<std::int64_t> sequence(record.sequence);
  // Marks the record as being written, so that a reader that lags by one turn of the ring does not
  // use a mix of two records. The exchange acquires, so that no write below moves before it (a
  // fence would also do, but TSan does not support fences).
  sequence.exchange(0, std::memory_order_acq_rel);
  fill_record(*scalars, args.totals.as<double>(), args.totals.numel(), record);
  if (args.squares)
    std::copy_n(args.squares.as<double>(), args.squares.numel(),
                args.squares_ring.as<double>() + slot * args.squares.numel());
  sequence.store(scalars->step + 1, std::memory_order_release);
}

const KernelRegistration kRegistration(&write_metrics);

}  // namespace
}  // namespace muo::host
