#include "kernels/activation.h"

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

// max(0, x): this argument order propagates NaN.
simd::F32 relu(simd::F32 x) { return simd::max(simd::broadcast(0.0F), x); }

void relu_squared(const ReluSquaredArgs& args) {
  dispatch(args.x.dtype, [&]<class T>() {
    T* y = args.y.as<T>();
    const T* x = args.x.as<T>();
    simd::for_lanes(args.x.numel(), [&](std::int64_t i, auto lanes) {
      const simd::F32 r = relu(simd::load(x + i, lanes));
      simd::store(y + i, r * r, lanes);
    });
  });
}

void relu_squared_backward(const ReluSquaredBackwardArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    T* dx = args.dx.as<T>();
    const T* dy = args.dy.as<T>();
    const T* y = args.y.as<T>();
    simd::for_lanes(args.y.numel(), [&](std::int64_t i, auto lanes) {
      const simd::F32 r = simd::rounded<T>(simd::sqrt(simd::load(y + i, lanes)));
      simd::store(dx + i, (r + r) * simd::load(dy + i, lanes), lanes);
    });
  });
}

const KernelRegistration kRegistration(&relu_squared, &relu_squared_backward);

}  // namespace
}  // namespace muo::host
