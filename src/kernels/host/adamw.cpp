#include "kernels/adamw.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/lerp.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"
#include "kernels/step_scalars.h"

namespace muo::host {

namespace {

template <class T>
void adamw_of(const AdamwArgs& args, const StepScalars::Adam& s, float gradient_scale) {
  float* __restrict w = args.weight.as<float>();
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
    w[i] = w[i] * decay - rate * (mi / (std::sqrt(vi / c2) + eps));
    m[i] = from_f32<T>(mi);
    v[i] = from_f32<T>(vi);
  }
}

void adamw(const AdamwArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (scalars->commit == 0) return;
  dispatch(args.m.dtype, [&]<class T>() {
    adamw_of<T>(args, scalars->adam[args.group], scalars->gradient_scale);
  });
  if (args.replica)
    simd::copy(args.replica.as<BF16>(), args.weight.as<float>(), args.weight.numel());
}

const KernelRegistration kRegistration(&adamw);

}  // namespace
}  // namespace muo::host
