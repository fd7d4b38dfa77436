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

// Of the whole tensor: rows in fp32 as everywhere, their sums in fp64.
template <class T>
double inner_product(const Tensor& a, const Tensor& b) {
  const std::int64_t c = a.shape[1];
  double sum = 0;
  for (std::int64_t row = 0; row < a.shape[0]; ++row)
    sum += static_cast<double>(simd::dot(a.as<T>() + row * c, b.as<T>() + row * c, c));
  return sum;
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
      T* y = args.y.as<T>() + row * c;  // holds the mixed row until its norm is known
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

void mix_backward(const MixBackwardArgs& args) {
  const double sign{args.sign};
  const simd::F32 alpha = simd::broadcast(value_or(args.alpha, 1.0F));
  const simd::F32 beta = simd::broadcast(args.sign * value_or(args.beta, 0.0F));
  dispatch(args.dx.dtype, [&]<class T>() {
    if (args.alpha) put(args.dalpha, inner_product<T>(args.dx, args.x), args.accumulate);
    if (args.beta) put(args.dbeta, sign * inner_product<T>(args.dx, args.z), args.accumulate);
    T* dx = args.dx.as<T>();
    T* dz = args.beta ? args.dz.as<T>() : nullptr;
    simd::for_lanes(args.dx.numel(), [&](std::int64_t i, auto lanes) {
      const simd::F32 d = simd::load(dx + i, lanes);
      if (dz != nullptr)
        simd::store(dz + i, args.add_dz ? simd::fma(beta, d, simd::load(dz + i, lanes)) : beta * d,
                    lanes);
      if (args.alpha) simd::store(dx + i, alpha * d, lanes);
    });
  });
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

const KernelRegistration kRegistration(&mix_norm, &mix_backward, &add);

}  // namespace
}  // namespace muo::host
