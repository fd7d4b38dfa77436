#include <cmath>

#include "kernels/cuda/registration.h"
#include "kernels/metrics.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/launch.h"

namespace muo::cuda {
namespace {

// One thread: 72 bytes into pinned host memory, bound by the latency of the bus. A reader on the
// host may be looking: volatile stores and fences for the whole system keep the order.
__global__ void write_metrics_kernel(MetricsRecord* ring, std::int64_t slots, const double* totals,
                                     const StepScalars* scalars) {
  const std::int64_t step = scalars->step;
  volatile MetricsRecord* record = ring + step % slots;
  // Marked as being written first: a reader that comes during the next lap must not take the mix.
  record->sequence = 0;
  __threadfence_system();
  record->step = step;
  record->updates = scalars->updates + scalars->commit;
  record->committed = scalars->commit;
  record->lr_multiplier = scalars->lr_multiplier;
  record->muon_momentum = scalars->muon_momentum;
  record->muon_weight_decay = scalars->muon_weight_decay;
  record->loss = totals[0];
  record->grad_norm = std::sqrt(totals[1]);
  __threadfence_system();
  record->sequence = step + 1;
}

void write_metrics(NativeStream stream, const WriteMetricsArgs& args) {
  const std::int64_t slots = args.ring.bytes() / static_cast<std::int64_t>(sizeof(MetricsRecord));
  launch(write_metrics_kernel, 1, 1, 0, stream, args.ring.as_struct<MetricsRecord>(), slots,
         args.totals.as<double>(), args.scalars.as_struct<StepScalars>());
}

const KernelRegistration<WriteMetricsArgs> registration(&write_metrics);

}  // namespace
}  // namespace muo::cuda
