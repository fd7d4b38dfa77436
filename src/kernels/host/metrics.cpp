#include "kernels/metrics.h"

#include <atomic>

#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {
namespace {

void write_metrics(const WriteMetricsArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  const std::int64_t slots = args.ring.bytes() / static_cast<std::int64_t>(sizeof(MetricsRecord));
  MetricsRecord& record = args.ring.as_struct<MetricsRecord>()[scalars->step % slots];
  std::atomic_ref<std::int64_t> sequence(record.sequence);
  // Marked as being written first: a reader that comes during the next lap must not take the mix.
  // Acquire, so that no write below moves before it (a fence would do, but not under TSan).
  sequence.exchange(0, std::memory_order_acq_rel);
  fill_record(*scalars, args.totals.as<double>(), args.totals.numel(), record);
  sequence.store(scalars->step + 1, std::memory_order_release);
}

const KernelRegistration kRegistration(&write_metrics);

}  // namespace
}  // namespace muo::host
