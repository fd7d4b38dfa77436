#include "kernels/commit.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

// One thread: a few hundred bytes, bound by the latency of a launch and of memory.
__global__ void agree_commit_kernel(StepScalars* scalars, LossStatistics* statistics,
                                    const HyperParameters* hyper, const double* totals,
                                    std::int64_t count) {
  decide(*hyper, totals, count, *statistics, *scalars);
}

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// Grid-stride. If `squares` fits into fp32, as it nearly always does, bound by the latency of a
// launch; else reads sizeof(T) bytes per element. `found` is a non-negative fp64, whose bits have
// the same order as its values, so the maximum does not depend on the order of threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    note_nonfinite_kernel(double* found, const T* x, const double* squares, std::int64_t count,
                          std::int64_t base, std::int64_t stride) {
  if (squares != nullptr && *squares <= kLargestSquares) return;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += threads) {
    if (has_square(to_float(x[i]))) continue;
    const double mine = kNoIndex - static_cast<double>(base + i * stride);
    atomicMax(reinterpret_cast<unsigned long long*>(found),
              static_cast<unsigned long long>(__double_as_longlong(mine)));
    return;
  }
}

void agree_commit(NativeStream stream, const AgreeCommitArgs& args) {
  launch(agree_commit_kernel, 1, 1, 0, stream, args.scalars.as_struct<StepScalars>(),
         args.statistics.as_struct<LossStatistics>(), args.hyper.as_struct<HyperParameters>(),
         args.totals.as<double>(), args.totals.numel());
}

void note_nonfinite(NativeStream stream, const NoteNonfiniteArgs& args) {
  const std::int64_t count = args.x.numel();
  dispatch(args.x.dtype, [&]<class T>() {
    launch(note_nonfinite_kernel<T>, blocks_for(count, kThreads * kPerThread, 1024), kThreads, 0,
           stream, args.found.as<double>(), args.x.as<T>(), data_or_null<double>(args.squares),
           count, args.base, args.stride);
  });
}

const KernelRegistration registration(&agree_commit, &note_nonfinite);

}  // namespace
}  // namespace muo::cuda
