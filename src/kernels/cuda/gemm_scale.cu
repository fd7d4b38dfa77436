#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/gemm_scale.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A thread takes every (threads of the grid)th element: 2 sizeof(T) bytes each, bound by bandwidth.
// Degenerate products only, so nothing is gained by wider accesses.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(T* d, const T* c, float beta, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    d[i] = from_float<T>(c == nullptr ? 0.0F : beta * to_float(c[i]));
}

}  // namespace

void scale_into(NativeStream stream, Tensor d, Tensor c, float beta) {
  const std::int64_t count = d.numel();
  if (count == 0) return;
  dispatch(d.dtype, [&]<class T>() {
    launch(scale_kernel<T>, blocks_for(count, kThreads, kManyBlocks), kThreads, 0, stream,
           d.as<T>(), c ? c.as<T>() : nullptr, beta, count);
  });
}

}  // namespace muo::cuda
