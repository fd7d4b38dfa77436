#include "kernels/adamw.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/lerp.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = kWidth<BF16>;  // two accesses of fp32, one of bf16

// A thread takes N neighbours; parameters of one bucket are contiguous, so one launch serves all
// tensors of a group. fp32 moments: 28 bytes per element and 2 for the replica; bf16: 20 and 2.
// Six or eight loads of 16 bytes per thread are on their way at once: bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(float* w, BF16* replica, T* m, T* v, const float* g, const StepScalars* scalars,
                 int group, std::int64_t n) {
  if (scalars->commit == 0) return;
  const StepScalars::Adam s = scalars->adam[group];
  const float gradient_scale = scalars->gradient_scale;
  const auto update = [&]<int M>(std::int64_t i) {
    Pack<M> weight = load_wide<M>(w + i);
    Pack<M> first = load_wide<M>(m + i);
    Pack<M> second = load_wide<M>(v + i);
    const Pack<M> gradient = load_wide<M>(g + i);
    const float decay = 1.0F - s.lr * s.weight_decay;
    const float rate = s.lr / s.correction1;
#pragma unroll
    for (int j = 0; j < M; ++j) {
      const float gj = gradient.v[j] * gradient_scale;
      first.v[j] = lerp(first.v[j], gj, 1.0F - s.beta1);
      second.v[j] = lerp(second.v[j], gj * gj, 1.0F - s.beta2);
      const float step = first.v[j] / (sqrtf(second.v[j] / s.correction2) + s.eps);
      weight.v[j] = fmaf(-rate, step, weight.v[j] * decay);
    }
    store_wide(w + i, weight);
    store_wide(m + i, first);
    store_wide(v + i, second);
    if (replica != nullptr) store_wide(replica + i, weight);
  };
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t packs = n / N;
  if (thread < packs) update.template operator()<N>(thread * N);
  if constexpr (N > 1)
    if (const std::int64_t i = packs * N + threadIdx.x; blockIdx.x == 0 && i < n)
      update.template operator()<1>(i);
}

void adamw(NativeStream stream, const AdamwArgs& args) {
  const std::int64_t n = args.weight.numel();
  if (n == 0) return;
  dispatch(args.m.dtype, [&]<class T>() {
    auto* replica = args.replica ? args.replica.as<BF16>() : nullptr;
    const bool wide =
        vectors_fit<T>(0, {args.weight.data, replica, args.m.data, args.v.data, args.grad.data});
    launch(wide ? adamw_kernel<T, kPack> : adamw_kernel<T, 1>,
           blocks_for(wide ? n / kPack : n, kThreads), kThreads, 0, stream, args.weight.as<float>(),
           replica, args.m.as<T>(), args.v.as<T>(), args.grad.as<float>(),
           args.scalars.as_struct<StepScalars>(), args.group, n);
  });
}

const KernelRegistration<AdamwArgs> registration(&adamw);

}  // namespace
}  // namespace muo::cuda
