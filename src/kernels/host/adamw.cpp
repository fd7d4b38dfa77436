#include "kernels/adamw.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/lerp.h"
#include "kernels/host/master.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {

namespace {

// How moments are stored.
struct ToNearest {
  template <class T>
  void store(T& m, T& v, std::int64_t /*i*/, float new_m, float new_v) const {
    m = from_f32<T>(new_m);
    v = from_f32<T>(new_v);
  }
};
struct Stochastically {
  RoundingNoise noise;
  std::int64_t begin;
  void store(BF16& m, BF16& v, std::int64_t i, float new_m, float new_v) const {
    const std::uint32_t bits = noise(begin + i);
    m = round_stochastically(new_m, first_noise(bits));
    v = round_stochastically(new_v, second_noise(bits));
  }
};

template <class T, class Master, class Rounding>
void adamw_of(const AdamwArgs& args, const StepScalars& scalars, const Master& w,
              const Rounding& rounding) {
  const StepScalars::Adam& s = scalars.adam[args.group];
  const float gradient_scale = scalars.gradient_scale;
  T* __restrict m = args.m.as<T>();
  T* __restrict v = args.v.as<T>();
  const float* __restrict g = args.grad.as<float>();
  const std::int64_t n = args.weight.numel();
  const Lerp lerp1(1.0F - s.beta1);
  const Lerp lerp2(1.0F - s.beta2);
  const float decay = 1.0F - s.lr * s.weight_decay;
  const float rate = s.lr / s.correction1;
  const float c2 = s.correction2;
  const float eps = s.eps;
  for (std::int64_t i = 0; i < n; ++i) {
    const float gi = g[i] * gradient_scale;
    const float mi = lerp1(to_f32(m[i]), gi);
    const float vi = lerp2(to_f32(v[i]), gi * gi);
    w.store(i, w.load(i) * decay - rate * (mi / (std::sqrt(vi / c2) + eps)));
    rounding.store(m[i], v[i], i, mi, vi);
  }
}

void adamw(const AdamwArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (scalars->commit == 0) return;
  with_master(args.weight, args.replica, [&](const auto& master) {
    if (args.rounding)
      adamw_of<BF16>(args, *scalars, master,
                     Stochastically{RoundingNoise(args.rounding->random, scalars->updates),
                                    args.rounding->begin});
    else
      dispatch(args.m.dtype, [&]<class T>() { adamw_of<T>(args, *scalars, master, ToNearest{}); });
  });
}

const KernelRegistration kRegistration(&adamw);

}  // namespace
}  // namespace muo::host
