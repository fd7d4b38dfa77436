#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/norm.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

// One warp per row, a lane every 32nd vector. The row is read twice, the second time from L1, so
// memory sees 2 sizeof(T) bytes per element: bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_kernel(T* y, float* rstd, const T* x, std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int64_t first = std::int64_t{lane_id()} * N;
  x += row * c;
  y += row * c;
  float squares = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> values = load<N>(x + i);
    squares = dot(values, values, squares);
  }
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  for (std::int64_t i = first; i < c; i += kWarp * N)
    store(y + i, scaled(factor, load<N>(x + i)));
  if (lane_id() == 0) rstd[row] = factor;
}

// As the forward: one warp per row. Reads dy and y (twice, the second time from L1), writes dx, and
// reads it before if kAccumulate: 3 or 4 sizeof(T) bytes per element, bound by bandwidth.
template <class T, int N, bool kAccumulate>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_backward_kernel(T* dx, const T* dy, const T* y, const float* rstd, std::int64_t n,
                             std::int64_t c) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  const std::int64_t first = std::int64_t{lane_id()} * N;
  dx += row * c;
  dy += row * c;
  y += row * c;
  float sum = 0.0F;
  for (std::int64_t i = first; i < c; i += kWarp * N)
    sum = dot(load<N>(dy + i), load<N>(y + i), sum);
  const float mean = warp_sum(sum) / static_cast<float>(c);
  const float factor = rstd[row];
  for (std::int64_t i = first; i < c; i += kWarp * N) {
    const Pack<N> centred = add_scaled(-mean, load<N>(y + i), load<N>(dy + i));
    if constexpr (kAccumulate)
      store(dx + i, add_scaled(factor, centred, load<N>(dx + i)));
    else
      store(dx + i, scaled(factor, centred));
  }
}

void rms_norm(NativeStream stream, const RmsNormArgs& args) {
  const std::int64_t n = args.x.shape[0], c = args.x.shape[1];
  dispatch_packs(args.x.dtype, c, {args.x.data, args.y.data}, [&]<class T, int N>() {
    launch_rows(rms_norm_kernel<T, N>, stream, n, args.y.as<T>(), args.rstd.as<float>(),
                args.x.as<T>(), n, c, args.eps);
  });
}

void rms_norm_backward(NativeStream stream, const RmsNormBackwardArgs& args) {
  const std::int64_t n = args.y.shape[0], c = args.y.shape[1];
  dispatch_packs(args.y.dtype, c, {args.dx.data, args.dy.data, args.y.data}, [&]<class T, int N>() {
    launch_rows(args.accumulate ? rms_norm_backward_kernel<T, N, true>
                                : rms_norm_backward_kernel<T, N, false>,
                stream, n, args.dx.as<T>(), args.dy.as<T>(), args.y.as<T>(), args.rstd.as<float>(),
                n, c);
  });
}

const KernelRegistration registration(&rms_norm, &rms_norm_backward);

}  // namespace
}  // namespace muo::cuda
