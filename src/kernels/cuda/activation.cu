#include "kernels/activation.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/relu_squared.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

// Element-wise (elementwise.h): 2 sizeof(T) bytes per element, bound by bandwidth.
struct ReluSquared {
  static constexpr int kPacks = 4;
  __device__ __forceinline__ float operator()(float x) const { return relu_squared(x); }
};

// Element-wise: 3 sizeof(T) bytes per element, bound by bandwidth.
template <class T>
struct ReluSquaredBackward {
  static constexpr int kPacks = 2;
  __device__ __forceinline__ float operator()(float dy, float y) const {
    return relu_squared_backward<T>(dy, sqrtf(y));
  }
};

void relu_squared(NativeStream stream, const ReluSquaredArgs& args) {
  dispatch(args.x.dtype, [&]<class T>() {
    launch_map(stream, args.x.numel(), ReluSquared{}, args.y.as<T>(), args.x.as<T>());
  });
}

void relu_squared_backward(NativeStream stream, const ReluSquaredBackwardArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    launch_map(stream, args.y.numel(), ReluSquaredBackward<T>{}, args.dx.as<T>(), args.dy.as<T>(),
               args.y.as<T>());
  });
}

const KernelRegistration registration(&relu_squared, &relu_squared_backward);

}  // namespace
}  // namespace muo::cuda
