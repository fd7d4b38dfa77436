#include "kernels/norm.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

template <class T>
float forward_row(T* y, const T* x, std::int64_t c, float eps) {
  const float rstd = 1.0F / std::sqrt(simd::dot(x, x, c) / static_cast<float>(c) + eps);
  simd::scale(y, rstd, x, c);
  return rstd;
}

template <bool kAccumulate, class T>
void backward_row(T* dx, const T* dy, const T* y, float rstd, std::int64_t c) {
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

void rms_norm(const RmsNormArgs& args) {
  const std::int64_t n = args.x.shape[0], c = args.x.shape[1];
  auto* rstd = args.rstd.as<float>();
  dispatch(args.x.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < n; ++row)
      rstd[row] = forward_row(args.y.as<T>() + row * c, args.x.as<T>() + row * c, c, args.eps);
  });
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  const std::int64_t n = args.y.shape[0], c = args.y.shape[1];
  const auto* rstd = args.rstd.as<float>();
  dispatch(args.y.dtype, [&]<class T>() {
    const auto row_function = args.accumulate ? &backward_row<true, T> : &backward_row<false, T>;
    for (std::int64_t row = 0; row < n; ++row)
      row_function(args.dx.as<T>() + row * c, args.dy.as<T>() + row * c, args.y.as<T>() + row * c,
                   rstd[row], c);
  });
}

const KernelRegistration kRegistration(&rms_norm, &rms_norm_backward);

}  // namespace
}  // namespace muo::host
