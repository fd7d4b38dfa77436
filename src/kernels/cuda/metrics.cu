#include <cstddef>

#include "kernels/metrics.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/ptx.h"

namespace muo::cuda {
namespace {

// One thread: some hundred bytes into pinned host memory, bound by the latency of the bus. A reader
// on the host may be looking at the sequence.
__global__ void write_metrics_kernel(MetricsRecord* ring, std::int64_t slots, const double* totals,
                                     std::int64_t count, const StepScalars* scalars) {
  constexpr std::size_t kWords = sizeof(MetricsRecord) / sizeof(std::uint64_t);
  static_assert(sizeof(MetricsRecord) % sizeof(std::uint64_t) == 0 &&
                offsetof(MetricsRecord, sequence) == 0);
  MetricsRecord record;
  fill_record(*scalars, totals, count, record);
  const auto* from = reinterpret_cast<const std::uint64_t*>(&record);
  auto* to = reinterpret_cast<std::uint64_t*>(ring + record.step % slots);
  // Marked as being written first: a reader that comes during the next lap must not take the mix.
  store_release_system(to, 0);
  __threadfence_system();
  for (std::size_t i = 1; i < kWords; ++i)
    to[i] = from[i];
  store_release_system(to, static_cast<std::uint64_t>(record.step + 1));
}

void write_metrics(NativeStream stream, const WriteMetricsArgs& args) {
  const std::int64_t slots = args.ring.bytes() / static_cast<std::int64_t>(sizeof(MetricsRecord));
  launch(write_metrics_kernel, 1, 1, 0, stream, args.ring.as_struct<MetricsRecord>(), slots,
         args.totals.as<double>(), args.totals.numel(), args.scalars.as_struct<StepScalars>());
}

const KernelRegistration registration(&write_metrics);

}  // namespace
}  // namespace muo::cuda
