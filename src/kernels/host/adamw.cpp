#include <cmath>

#include "kernels/adamw_impl.h"
#include "kernels/host/lerp.h"
#include "kernels/step_scalars.h"

namespace muo::host {

void adamw(const AdamwArgs& args) {
  const auto* scalars = args.scalars.as_struct<StepScalars>();
  if (scalars->commit == 0) return;
  const StepScalars::Adam s = scalars->adam[args.group];
  float* __restrict w = args.weight.as<float>();
  float* __restrict m = args.m.as<float>();
  float* __restrict v = args.v.as<float>();
  const float* __restrict g = args.grad.as<float>();
  const std::int64_t n = args.weight.numel();
  const Lerp lerp1(1.0F - s.beta1);
  const Lerp lerp2(1.0F - s.beta2);
  const float decay = 1.0F - s.lr * s.weight_decay;
  const float rate = s.lr / s.correction1;
  const float c2 = s.correction2;
  const float eps = s.eps;
  for (std::int64_t i = 0; i < n; ++i) {
    const float mi = lerp1(m[i], g[i]);
    const float vi = lerp2(v[i], g[i] * g[i]);
    w[i] = w[i] * decay - rate * (mi / (std::sqrt(vi / c2) + eps));
    m[i] = mi;
    v[i] = vi;
  }
}

}  // namespace muo::host
