#include "kernels/cuda/block.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/norm.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRows = kThreads / kWarp;  // of a block

// One warp per row, a lane every 32nd vector. The row is read twice, the second time from L1, so
// memory sees 2 sizeof(T) bytes per element: bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(T* y, float* rstd, const T* x, std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= n) return;
  const std::int64_t first = std::int64_t{threadIdx.x % 32} * N;
  x += row * c;
  y += row * c;
  float squares = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> values = load<N>(x + i);
    squares = dot(values, values, squares);
  }
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    Pack<N> values = load<N>(x + i);
#pragma unroll
    for (float& v : values.v)
      v *= factor;
    store(y + i, values);
  }
  if (threadIdx.x % 32 == 0) rstd[row] = factor;
}

// As the forward: one warp per row. Reads dy and y (twice, the second time from L1), writes dx, and
// reads it before if kAccumulate: 3 or 4 sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N, bool kAccumulate>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward_kernel(T* dx, const T* dy, const T* y, const float* rstd, std::int64_t n,
                             std::int64_t c) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
  if (row >= n) return;
  const std::int64_t first = std::int64_t{threadIdx.x % 32} * N;
  dx += row * c;
  dy += row * c;
  y += row * c;
  float sum = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N)
    sum = dot(load<N>(dy + i), load<N>(y + i), sum);
  const float mean = warp_sum(sum) / static_cast<float>(c);
  const float factor = rstd[row];
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> gradient = load<N>(dy + i);
    const Pack<N> output = load<N>(y + i);
    Pack<N> out;
    if constexpr (kAccumulate) out = load<N>(dx + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float centred = fmaf(-output.v[j], mean, gradient.v[j]);
      out.v[j] = kAccumulate ? fmaf(factor, centred, out.v[j]) : factor * centred;
    }
    store(dx + i, out);
  }
}

void rms_norm(NativeStream stream, const RmsNormArgs& args) {
  const std::int64_t n = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  if (n == 0) return;
  dispatch(args.x.dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(c, {args.x.data, args.y.data}), [&]<int N>() {
      launch(rms_norm_kernel<T, N>, blocks_for(n, kRows), kThreads, 0, stream, args.y.as<T>(),
             args.rstd.as<float>(), args.x.as<T>(), n, c, args.eps);
    });
  });
}

void rms_norm_backward(NativeStream stream, const RmsNormBackwardArgs& args) {
  const std::int64_t n = args.y.shape[0];
  const std::int64_t c = args.y.shape[1];
  if (n == 0) return;
  dispatch(args.y.dtype, [&]<class T>() {
    with_width<T>(vectors_fit<T>(c, {args.dx.data, args.dy.data, args.y.data}), [&]<int N>() {
      launch(args.accumulate ? rms_norm_backward_kernel<T, N, true>
                             : rms_norm_backward_kernel<T, N, false>,
             blocks_for(n, kRows), kThreads, 0, stream, args.dx.as<T>(), args.dy.as<T>(),
             args.y.as<T>(), args.rstd.as<float>(), n, c);
    });
  });
}

const KernelRegistration<RmsNormArgs> forward(&rms_norm);
const KernelRegistration<RmsNormBackwardArgs> backward(&rms_norm_backward);

}  // namespace
}  // namespace muo::cuda
