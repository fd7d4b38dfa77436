#include "kernels/residual.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

float value_or(const Tensor& scalar, float absent) {
  return scalar ? scalar.as<float>()[0] : absent;
}

void put(const Tensor& scalar, double value, bool accumulate) {
  auto* out = scalar.as<float>();
  *out = static_cast<float>(accumulate ? static_cast<double>(*out) + value : value);
}

void mix_norm(const MixNormArgs& args) {
  const std::int64_t n = args.x.shape[0], c = args.x.shape[1];
  const simd::F32 alpha = simd::broadcast(value_or(args.alpha, 1.0F));
  const simd::F32 beta = simd::broadcast(args.sign * value_or(args.beta, 0.0F));
  auto* rstd = args.rstd.as<float>();
  dispatch(args.x.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < n; ++row) {
      const T* x = args.x.as<T>() + row * c;
      const T* z = args.beta ? args.z.as<T>() + row * c : nullptr;
      T* y = args.y.as<T>() + row * c;  // the mixed row, until its norm is known
      simd::for_lanes(c, [&](std::int64_t i, auto lanes) {
        simd::F32 mixed = alpha * simd::load(x + i, lanes);
        if (z != nullptr) mixed = simd::fma(beta, simd::load(z + i, lanes), mixed);
        simd::store(y + i, mixed, lanes);
        if (args.mixed) simd::store(args.mixed.as<T>() + row * c + i, mixed, lanes);
      });
      rstd[row] = 1.0F / std::sqrt(simd::dot(y, y, c) / static_cast<float>(c) + args.eps);
      simd::scale(y, rstd[row], y, c);
    }
  });
}

template <class T>
void mix_norm_backward_of(const MixNormBackwardArgs& args) {
  using simd::F32;
  const std::int64_t c = args.dx.shape[1];
  const F32 alpha = simd::broadcast(value_or(args.alpha, 1.0F));
  const F32 beta = simd::broadcast(args.sign * value_or(args.beta, 0.0F));
  const bool has_alpha{args.alpha}, has_beta{args.beta};
  const auto* rstd = args.rstd.as<float>();
  double dalpha = 0, dbeta = 0;  // sums within a row are fp32, sums over rows fp64
  for (std::int64_t row = 0; row < args.dx.shape[0]; ++row) {
    const auto of = [&](const Tensor& tensor) { return tensor.as<T>() + row * c; };
    T* dx = of(args.dx);
    const T* dy = of(args.dy);
    const T* x_or_y = of(has_alpha ? args.x : args.y);
    const T* z = of(has_beta ? args.z : args.dx);  // without beta, z and dz are not used
    T* dz = of(has_beta ? args.dz : args.dx);
    const F32 factor = simd::broadcast(rstd[row]);
    const auto y = [&](std::int64_t i, auto lanes) {
      const F32 given = simd::load(x_or_y + i, lanes);
      if (!has_alpha) return given;
      F32 mixed = alpha * given;
      if (has_beta) mixed = simd::fma(beta, simd::load(z + i, lanes), mixed);
      return simd::rounded<T>(simd::rounded<T>(mixed) * factor);
    };
    const auto dy_of = [&](std::int64_t i, auto lanes) { return simd::load(dy + i, lanes); };
    const F32 mean = simd::broadcast(simd::dot_of(dy_of, y, c) / static_cast<float>(c));
    F32 sum_x = simd::broadcast(0.0F), sum_z = sum_x;
    simd::for_lanes(c, [&](std::int64_t i, auto lanes) {
      const F32 centred = simd::fnma(y(i, lanes), mean, dy_of(i, lanes));
      const F32 d = simd::rounded<T>(
          args.add_dx ? simd::fma(factor, centred, simd::load(dx + i, lanes)) : factor * centred);
      if (has_alpha) sum_x = simd::fma(d, simd::load(x_or_y + i, lanes), sum_x);
      if (has_beta) {
        sum_z = simd::fma(d, simd::load(z + i, lanes), sum_z);
        simd::store(dz + i, args.add_dz ? simd::fma(beta, d, simd::load(dz + i, lanes)) : beta * d,
                    lanes);
      }
      simd::store(dx + i, alpha * d, lanes);
    });
    dalpha += static_cast<double>(simd::sum(sum_x));
    dbeta += static_cast<double>(simd::sum(sum_z));
  }
  if (has_alpha) put(args.dalpha, dalpha, args.accumulate);
  if (has_beta) put(args.dbeta, double{args.sign} * dbeta, args.accumulate);
}

void mix_norm_backward(const MixNormBackwardArgs& args) {
  dispatch(args.dx.dtype, [&]<class T>() { mix_norm_backward_of<T>(args); });
}

void add(const AddArgs& args) {
  dispatch(args.y.dtype, [&]<class T>() {
    T* y = args.y.as<T>();
    const T* x = args.x.as<T>();
    simd::for_lanes(args.y.numel(), [&](std::int64_t i, auto lanes) {
      simd::store(y + i, simd::load(y + i, lanes) + simd::load(x + i, lanes), lanes);
    });
  });
}

const KernelRegistration kRegistration(&mix_norm, &mix_norm_backward, &add);

}  // namespace
}  // namespace muo::host
