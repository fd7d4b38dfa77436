#include "kernels/rotary.h"

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/host/index_check.h"
#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {

namespace {

template <class T>
void fill_tables(T* cos, T* sin, std::int64_t t, std::int64_t half, double base) {
  for (std::int64_t j = 0; j < half; ++j) {
    const double frequency = std::pow(base, -static_cast<double>(j) / static_cast<double>(half));
    for (std::int64_t p = 0; p < t; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos[p * half + j] = from_f32<T>(static_cast<float>(std::cos(angle)));
      sin[p * half + j] = from_f32<T>(static_cast<float>(std::sin(angle)));
    }
  }
}

template <class T>
float rotate_and_normalise(T* x, const T* cos, const T* sin, std::int64_t half, float scale,
                           float eps) {
  struct Pair {
    simd::F32 r1, r2;
  };
  const auto put = [=](std::int64_t j, Pair r, auto lanes) {
    simd::store(x + j, r.r1, lanes);
    simd::store(x + half + j, r.r2, lanes);
  };
  const auto rotated = [=](std::int64_t j, auto lanes) -> Pair {
    const simd::F32 x1 = simd::load(x + j, lanes);
    const simd::F32 x2 = simd::load(x + half + j, lanes);
    const simd::F32 c = simd::load(cos + j, lanes);
    const simd::F32 s = simd::load(sin + j, lanes);
    return {simd::fma(x1, c, x2 * s), simd::fnma(x1, s, x2 * c)};
  };
  // In fp32, the results of the rotation are stored in between, which is faster. In bf16 the
  // rotation is computed twice, because a store would round it.
  constexpr bool kStored = std::is_same_v<T, float>;
  simd::F32 squares = simd::broadcast(0.0F);
  simd::for_lanes(half, [&](std::int64_t j, auto lanes) {
    const Pair r = rotated(j, lanes);
    squares = simd::fma(r.r1, r.r1, simd::fma(r.r2, r.r2, squares));
    if constexpr (kStored) put(j, r, lanes);
  });
  const float mean = simd::sum(squares) / static_cast<float>(2 * half);
  const float rstd = 1.0F / std::sqrt(mean + eps);
  if constexpr (kStored)
    simd::scale(x, scale * rstd, x, 2 * half);
  else
    simd::for_lanes(half, [&](std::int64_t j, auto lanes) {
      const simd::F32 factor = simd::broadcast(scale * rstd);
      const Pair r = rotated(j, lanes);
      put(j, {r.r1 * factor, r.r2 * factor}, lanes);
    });
  return rstd;
}

template <class T>
void backward_row(T* dx, const T* y, const T* cos, const T* sin, std::int64_t half, float scale,
                  float rstd) {
  // yhat mean(dy yhat) = y dot(dy, y) / (scale^2 h)
  const float mean = simd::dot(dx, y, 2 * half) / (scale * scale * static_cast<float>(2 * half));
  const simd::F32 weight = simd::broadcast(mean);
  const simd::F32 factor = simd::broadcast(scale * rstd);
  simd::for_lanes(half, [&](std::int64_t j, auto lanes) {
    const simd::F32 c = factor * simd::load(cos + j, lanes);
    const simd::F32 s = factor * simd::load(sin + j, lanes);
    const simd::F32 d1 = simd::fnma(simd::load(y + j, lanes), weight, simd::load(dx + j, lanes));
    const simd::F32 d2 =
        simd::fnma(simd::load(y + half + j, lanes), weight, simd::load(dx + half + j, lanes));
    simd::store(dx + j, simd::fnma(d2, s, d1 * c), lanes);
    simd::store(dx + half + j, simd::fma(d1, s, d2 * c), lanes);
  });
}

void rotary_table(const RotaryTableArgs& args) {
  dispatch(args.cos.dtype, [&]<class T>() {
    fill_tables(args.cos.as<T>(), args.sin.as<T>(), args.cos.shape[0], args.cos.shape[1],
                args.base);
  });
}

void rotary_norm(const RotaryNormArgs& args) {
  const std::int64_t t = args.x.shape[1], heads = args.x.shape[2], h = args.x.shape[3];
  auto* rstd = args.rstd.as<float>();
  dispatch(args.x.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < args.rstd.numel(); ++row) {
      const std::int64_t index = args.first_position + row / heads % t;
      const std::int64_t position =
          args.positions ? index + index_at(args.positions, row / heads / t,
                                            "rotary_norm: position", 0, args.cos.shape[0] - index)
                         : index;
      const std::int64_t table_row = position * (h / 2);
      rstd[row] = rotate_and_normalise(args.x.as<T>() + row * h, args.cos.as<T>() + table_row,
                                       args.sin.as<T>() + table_row, h / 2, args.scale, args.eps);
    }
  });
}

void rotary_norm_backward(const RotaryNormBackwardArgs& args) {
  const std::int64_t t = args.y.shape[1], heads = args.y.shape[2], h = args.y.shape[3];
  const auto* rstd = args.rstd.as<float>();
  dispatch(args.y.dtype, [&]<class T>() {
    for (std::int64_t row = 0; row < args.rstd.numel(); ++row) {
      const std::int64_t table_row = row / heads % t * (h / 2);
      backward_row<T>(args.dx.as<T>() + row * h, args.y.as<T>() + row * h,
                      args.cos.as<T>() + table_row, args.sin.as<T>() + table_row, h / 2, args.scale,
                      rstd[row]);
    }
  });
}

const KernelRegistration kRegistration(&rotary_table, &rotary_norm, &rotary_norm_backward);

}  // namespace
}  // namespace muo::host
