#include <atomic>
#include <cmath>

#include "kernels/metrics_impl.h"
#include "kernels/step_scalars.h"

namespace muo::host {

void write_metrics(const WriteMetricsArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  const auto* totals = args.totals.as<double>();
  const std::int64_t slots = args.ring.bytes() / static_cast<std::int64_t>(sizeof(MetricsRecord));
  MetricsRecord& record = args.ring.as_struct<MetricsRecord>()[scalars->step % slots];
  std::atomic_ref<std::int64_t> sequence(record.sequence);
  // Marked as being written first: a reader that comes during the next lap must not take the mix.
  // Acquire, so that no write below moves before it (a fence would do, but not under TSan).
  sequence.exchange(0, std::memory_order_acq_rel);
  record.step = scalars->step;
  record.updates = scalars->updates + scalars->commit;
  record.committed = scalars->commit;
  record.lr_multiplier = scalars->lr_multiplier;
  record.muon_momentum = scalars->muon_momentum;
  record.muon_weight_decay = scalars->muon_weight_decay;
  record.loss = totals[0];
  record.grad_norm = std::sqrt(totals[1]);
  sequence.store(scalars->step + 1, std::memory_order_release);
}

}  // namespace muo::host
