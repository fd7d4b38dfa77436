#include <cmath>

#include "kernels/host/simd_bf16.h"
#include "kernels/norm_impl.h"

namespace muo::host {

void rms_norm(const RmsNormArgs& args) {
  const std::int64_t n = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  auto* rstd = args.rstd.as<float>();
  for (std::int64_t row = 0; row < n; ++row) {
    const float* x = args.x.as<float>() + row * c;
    float* y = args.y.as<float>() + row * c;
    rstd[row] = 1.0F / std::sqrt(simd::dot(x, x, c) / static_cast<float>(c) + args.eps);
    const simd::F32 factor = simd::broadcast(rstd[row]);
    simd::for_lanes(c, [&](std::int64_t i, auto lanes) {
      simd::store(y + i, simd::load(x + i, lanes) * factor, lanes);
    });
  }
}

namespace {

template <bool kAccumulate>
void backward_row(float* dx, const float* dy, const float* y, float rstd, std::int64_t c) {
  const simd::F32 mean = simd::broadcast(simd::dot(dy, y, c) / static_cast<float>(c));
  const simd::F32 factor = simd::broadcast(rstd);
  simd::for_lanes(c, [&](std::int64_t i, auto lanes) {
    const simd::F32 centred = simd::fnma(simd::load(y + i, lanes), mean, simd::load(dy + i, lanes));
    if constexpr (kAccumulate)
      simd::store(dx + i, simd::fma(factor, centred, simd::load(dx + i, lanes)), lanes);
    else
      simd::store(dx + i, factor * centred, lanes);
  });
}

}  // namespace

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  const std::int64_t n = args.y.shape[0];
  const std::int64_t c = args.y.shape[1];
  const auto* rstd = args.rstd.as<float>();
  const auto row_function = args.accumulate ? &backward_row<true> : &backward_row<false>;
  for (std::int64_t row = 0; row < n; ++row)
    row_function(args.dx.as<float>() + row * c, args.dy.as<float>() + row * c,
                 args.y.as<float>() + row * c, rstd[row], c);
}

}  // namespace muo::host
