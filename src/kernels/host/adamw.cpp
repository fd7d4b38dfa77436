#include "kernels/adamw.h"

#include <cmath>
#include <type_traits>

#include "kernels/dispatch.h"
#include "kernels/host/lerp.h"
#include "kernels/host/master.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {

namespace {

// The two ways of storing moments.
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

// Updates the `n` elements from `begin` on; w are their masters.
template <class T, class G, class Rounding>
void adamw_block(const AdamwArgs& args, const StepScalars& scalars, const Rounding& rounding,
                 float* __restrict w, std::int64_t begin, std::int64_t n) {
  const StepScalars::Adam& s = scalars.adam[args.group];
  const float gradient_scale = scalars.gradient_scale;
  T* __restrict m = args.m.as<T>() + begin;
  T* __restrict v = args.v.as<T>() + begin;
  const G* __restrict g = args.grad.as<G>() + begin;
  const Lerp lerp1(1.0F - s.beta1);
  const Lerp lerp2(1.0F - s.beta2);
  const float decay = 1.0F - s.lr * s.weight_decay;
  const float rate = s.lr / s.correction1;
  const float c2 = s.correction2;
  const float eps = s.eps;
  for (std::int64_t i = 0; i < n; ++i) {
    const float gi = to_f32(g[i]) * gradient_scale;
    const float mi = lerp1(to_f32(m[i]), gi);
    const float vi = lerp2(to_f32(v[i]), gi * gi);
    w[i] = w[i] * decay - rate * (mi / (std::sqrt(vi / c2) + eps));
    rounding.store(m[i], v[i], begin + i, mi, vi);
  }
}

void adamw(const AdamwArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (scalars->commit == 0) return zero_squares(args.squares);
  dispatch_both(args.m.dtype, args.grad.dtype, [&]<class T, class G>() {
    const auto commit = [&](const auto& rounding) {
      commit_master(args.weight, args.replica, nullptr, args.squares,
                    [&](float* w, std::int64_t begin, std::int64_t n) {
                      adamw_block<T, G>(args, *scalars, rounding, w, begin, n);
                    });
    };
    if constexpr (std::is_same_v<T, BF16>)
      if (args.rounding)
        return commit(Stochastically{RoundingNoise(args.rounding->random, scalars->updates),
                                     args.rounding->begin});
    commit(ToNearest{});
  });
}

const KernelRegistration kRegistration(&adamw);

}  // namespace
}  // namespace muo::host
