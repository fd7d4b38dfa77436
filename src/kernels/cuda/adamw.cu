#include "kernels/adamw.h"
#include "kernels/cuda/commit_loop.h"
#include "kernels/cuda/master.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::cuda {
namespace {

// Element-wise (commit_loop.h). The parameters of a bucket are contiguous, so one launch serves all
// tensors of a group. Moments take 16 bytes per element in fp32 and 8 in bf16, plus gradient and
// master. Six or eight 16-byte loads per thread are in flight at once: bound by bandwidth.
// Stochastic rounding adds some 10 integer operations per element, and 60 per thread for its keys.
template <class T, class G, class Master, bool kStochastic>
struct Adamw {
  Master master;
  T* m;
  T* v;
  const G* g;
  const StepScalars* scalars;
  int group;
  StochasticRounding rounding;

  template <int N>
  struct Inputs {
    Pack<N> w, m, v, g;
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    return {master.template load<N>(i), load_wide<N>(m + i), load_wide<N>(v + i),
            load_wide<N>(g + i)};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Inputs<N> in,
                                         ThreadSquares& squares) const {
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
      const float before = in.w.v[j];
      in.w.v[j] = fmaf(-rate, step, before * decay);
      squares.add(before, in.w.v[j]);
    }
    if constexpr (kStochastic) {
      const RoundingNoise noise(rounding.random, scalars->updates);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const std::uint32_t bits = noise(rounding.begin + i + j);
        in.m.v[j] = to_float(round_stochastically(in.m.v[j], first_noise(bits)));
        in.v.v[j] = to_float(round_stochastically(in.v.v[j], second_noise(bits)));
      }
    }
    master.store(i, in.w);
    store_wide(m + i, in.m);
    store_wide(v + i, in.v);
  }
};

template <class T, class G, bool kStochastic>
void launch_adamw(NativeStream stream, const AdamwArgs& args) {
  with_master(args.weight, args.replica, [&]<class Master>(const Master& master) {
    const Adamw<T, G, Master, kStochastic> body{
        .master = master,
        .m = args.m.as<T>(),
        .v = args.v.as<T>(),
        .g = args.grad.as<G>(),
        .scalars = args.scalars.as_struct<StepScalars>(),
        .group = args.group,
        .rounding = args.rounding.value_or(StochasticRounding{})};
    launch_commit(stream, body, args.weight.numel(), args.squares,
                  {args.weight.data, args.replica.data, body.m, body.v, body.g});
  });
}

void adamw(NativeStream stream, const AdamwArgs& args) {
  dispatch_both(args.m.dtype, args.grad.dtype, [&]<class T, class G>() {
    if constexpr (std::is_same_v<T, BF16>)
      if (args.rounding) return launch_adamw<T, G, true>(stream, args);
    launch_adamw<T, G, false>(stream, args);
  });
}

const KernelRegistration registration(&adamw);

}  // namespace
}  // namespace muo::cuda
