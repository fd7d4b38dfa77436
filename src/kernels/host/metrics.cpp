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
  // Marked as being written first: a reader that comes during the next lap must not take the mix.
  // Acquire, so that no write below moves before it (a fence would do, but not under TSan).
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
