#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/norm.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

// One warp per row; a lane takes every 32nd vector. 2 sizeof(T) bytes of memory traffic per
// element: bound by bandwidth.
template <class T, int N, int K>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_kernel(T* y, float* rstd, const T* x, std::int64_t n, std::int64_t c, float eps) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  y += row * c;
  const HeldRow<T, N, K> from(x + row * c, c);
  float squares = 0.0F;
  each_access<N, K>(c, [&](int k, std::int64_t i) {
    const Pack<N> values = from.at(k, i);
    squares = dot(values, values, squares);
  });
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(c) + eps);
  each_access<N, K>(c, [&](int k, std::int64_t i) { store(y + i, scaled(factor, from.at(k, i))); });
  if (lane_id() == 0) rstd[row] = factor;
}

// One warp per row, as forward. Reads dy and y, writes dx, and reads dx first if kAccumulate: 3 or
// 4 sizeof(T) bytes per element, bound by bandwidth. dx may be dy.
template <class T, int N, int K, bool kAccumulate>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_backward_kernel(T* dx, const T* dy, const T* y, const float* rstd, std::int64_t n,
                             std::int64_t c) {
  const std::int64_t row = row_of_warp();
  if (row >= n) return;
  dx += row * c;
  const HeldRow<T, N, K> given(dy + row * c, c), normed(y + row * c, c);
  const HeldRow<T, N, kAccumulate ? K : 0> old(dx, c);
  float sum = 0.0F;
  each_access<N, K>(
      c, [&](int k, std::int64_t i) { sum = dot(given.at(k, i), normed.at(k, i), sum); });
  const float mean = warp_sum(sum) / static_cast<float>(c);
  const float factor = rstd[row];
  each_access<N, K>(c, [&](int k, std::int64_t i) {
    const Pack<N> centred = add_scaled(-mean, normed.at(k, i), given.at(k, i));
    if constexpr (kAccumulate)
      store(dx + i, add_scaled(factor, centred, old.at(k, i)));
    else
      store(dx + i, scaled(factor, centred));
  });
}

void rms_norm(NativeStream stream, const RmsNormArgs& args) {
  const std::int64_t n = args.x.shape[0], c = args.x.shape[1];
  dispatch_held_rows(args.x.dtype, c, {args.x.data, args.y.data}, [&]<class T, int N, int K>() {
    launch_rows(rms_norm_kernel<T, N, K>, stream, n, args.y.as<T>(), args.rstd.as<float>(),
                args.x.as<T>(), n, c, args.eps);
  });
}

void rms_norm_backward(NativeStream stream, const RmsNormBackwardArgs& args) {
  const std::int64_t n = args.y.shape[0], c = args.y.shape[1];
  dispatch_held_rows(args.y.dtype, c, {args.dx.data, args.dy.data, args.y.data},
                     [&]<class T, int N, int K>() {
                       launch_rows(args.accumulate ? rms_norm_backward_kernel<T, N, K, true>
                                                   : rms_norm_backward_kernel<T, N, K, false>,
                                   stream, n, args.dx.as<T>(), args.dy.as<T>(), args.y.as<T>(),
                                   args.rstd.as<float>(), n, c);
                     });
}

const KernelRegistration registration(&rms_norm, &rms_norm_backward);

}  // namespace
}  // namespace muo::cuda
