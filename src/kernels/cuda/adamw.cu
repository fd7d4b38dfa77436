#include "kernels/adamw.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::cuda {
namespace {

// Element-wise (elementwise.h); parameters of one bucket are contiguous, so one launch serves all
// tensors of a group. fp32 moments: 28 bytes per element and 2 for the replica; bf16: 20 and 2. Six
// or eight loads of 16 bytes per thread are on their way at once: bound by bandwidth.
template <class T>
struct Adamw {
  static constexpr int kPacks = 1;
  float* w;
  BF16* replica;
  T* m;
  T* v;
  const float* g;
  const StepScalars* scalars;
  int group;

  template <int N>
  struct Inputs {
    Pack<N> w, m, v, g;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {load_wide<N>(w + i), load_wide<N>(m + i), load_wide<N>(v + i), load_wide<N>(g + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in) const {
    if (scalars->commit == 0) return;
    const StepScalars::Adam s = scalars->adam[group];
    const float decay = 1.0F - s.lr * s.weight_decay;
    const float rate = s.lr / s.correction1;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gradient = in.g.v[j] * scalars->gradient_scale;
      in.m.v[j] = lerp(in.m.v[j], gradient, 1.0F - s.beta1);
      in.v.v[j] = lerp(in.v.v[j], gradient * gradient, 1.0F - s.beta2);
      const float step = in.m.v[j] / (sqrtf(in.v.v[j] / s.correction2) + s.eps);
      in.w.v[j] = fmaf(-rate, step, in.w.v[j] * decay);
    }
    store_wide(w + i, in.w);
    store_wide(m + i, in.m);
    store_wide(v + i, in.v);
    if (replica != nullptr) store_wide(replica + i, in.w);
  }
};

void adamw(NativeStream stream, const AdamwArgs& args) {
  dispatch(args.m.dtype, [&]<class T>() {
    const Adamw<T> body{.w = args.weight.as<float>(),
                        .replica = data_or_null<BF16>(args.replica),
                        .m = args.m.as<T>(),
                        .v = args.v.as<T>(),
                        .g = args.grad.as<float>(),
                        .scalars = args.scalars.as_struct<StepScalars>(),
                        .group = args.group};
    launch_elementwise<BF16>(stream, body, args.weight.numel(),
                             {body.w, body.replica, body.m, body.v, body.g});
  });
}

const KernelRegistration registration(&adamw);

}  // namespace
}  // namespace muo::cuda
