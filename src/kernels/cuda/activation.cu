#include "kernels/activation.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

// Not fmaxf, which would turn NaN into zero.
__device__ __forceinline__ float relu(float x) { return x < 0.0F ? 0.0F : x; }

// Element-wise (elementwise.h): 2 sizeof(T) bytes per element, bound by bandwidth.
template <class T>
struct ReluSquared {
  static constexpr int kPacks = 4;
  T* y;
  const T* x;

  template <int N>
  __device__ __forceinline__ Pack<N> load(std::int64_t i) const {
    return cuda::load<N>(x + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Pack<N> values) const {
#pragma unroll
    for (float& v : values.v) {
      const float r = relu(v);
      v = r * r;
    }
    store(y + i, values);
  }
};

// Element-wise: 3 sizeof(T) bytes per element, bound by bandwidth.
template <class T>
struct ReluSquaredBackward {
  static constexpr int kPacks = 2;
  T* dx;
  const T* dy;
  const T* y;

  template <int N>
  struct Inputs {
    Pack<N> dy, y;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {cuda::load<N>(dy + i), cuda::load<N>(y + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Inputs<N>& in) const {
    Pack<N> out;
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.v[j] = sqrtf(in.y.v[j]);
    out = rounded<T>(out);
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.v[j] = (out.v[j] + out.v[j]) * in.dy.v[j];
    store(dx + i, out);
  }
};

void relu_squared(NativeStream stream, const ReluSquaredArgs& args) {
  dispatch(args.x.dtype, [&]<class T>() {
    const ReluSquared<T> body{args.y.as<T>(), args.x.as<T>()};
    with_width<T>(vectors_fit<T>(0, {body.y, body.x}),
                  [&]<int N>() { launch_elementwise<N>(stream, body, args.x.numel()); });
  });
}

void relu_squared_backward(NativeStream stream, const ReluSquaredBackwardArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    const ReluSquaredBackward<T> body{args.dx.as<T>(), args.dy.as<T>(), args.y.as<T>()};
    with_width<T>(vectors_fit<T>(0, {body.dx, body.dy, body.y}),
                  [&]<int N>() { launch_elementwise<N>(stream, body, args.y.numel()); });
  });
}

const KernelRegistration<ReluSquaredArgs> forward(&relu_squared);
const KernelRegistration<ReluSquaredBackwardArgs> backward(&relu_squared_backward);

}  // namespace
}  // namespace muo::cuda
