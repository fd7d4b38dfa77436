#include <cstddef>

#include "kernels/dispatch.h"
#include "kernels/metrics.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/ptx.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 256;

// Writes some kilobytes to pinned host memory, bound by the latency of the bus. The host may read
// the sequence concurrently. A single block, so registers are not limited.
__global__ void __launch_bounds__(kThreads, 1)
    write_metrics_kernel(MetricsRecord* ring, std::int64_t slots, const double* totals,
                         std::int64_t count, const StepScalars* scalars, double* squares_ring,
                         const double* squares, std::int64_t squares_count) {
  constexpr std::size_t kWords = sizeof(MetricsRecord) / sizeof(std::uint64_t);
  static_assert(sizeof(MetricsRecord) % sizeof(std::uint64_t) == 0 &&
                offsetof(MetricsRecord, sequence) == 0);
  const std::int64_t slot = scalars->step % slots;
  auto* to = reinterpret_cast<std::uint64_t*>(ring + slot);
  if (threadIdx.x == 0) {
    // Marks the record as being written, so that a reader that lags by one turn of the ring does
    // not use a mix of two records.
    store_release_system(to, 0);
    __threadfence_system();
    MetricsRecord record;
    fill_record(*scalars, totals, count, record);
    const auto* from = reinterpret_cast<const std::uint64_t*>(&record);
    for (std::size_t i = 1; i < kWords; ++i)
      to[i] = from[i];
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < squares_count; i += kThreads)
    squares_ring[slot * squares_count + i] = squares[i];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) store_release_system(to, static_cast<std::uint64_t>(scalars->step + 1));
}

void write_metrics(NativeStream stream, const WriteMetricsArgs& args) {
  launch(write_metrics_kernel, 1, kThreads, 0, stream, args.ring.as_struct<MetricsRecord>(),
         metrics_slots(args.ring), static_cast<const double*>(args.totals.as<double>()),
         args.totals.numel(),
         static_cast<const StepScalars*>(args.scalars.as_struct<StepScalars>()),
         data_or_null<double>(args.squares_ring),
         static_cast<const double*>(data_or_null<double>(args.squares)),
         args.squares ? args.squares.numel() : 0);
}

const KernelRegistration registration(&write_metrics);

}  // namespace
}  // namespace muo::cuda
