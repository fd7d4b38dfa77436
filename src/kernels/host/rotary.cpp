#include <cmath>

#include "kernels/host/simd_bf16.h"
#include "kernels/rotary_impl.h"

namespace muo::host {

void rotary_table(const RotaryTableArgs& args) {
  const std::int64_t t = args.cos.shape[0];
  const std::int64_t half = args.cos.shape[1];
  auto* cos = args.cos.as<float>();
  auto* sin = args.sin.as<float>();
  for (std::int64_t j = 0; j < half; ++j) {
    const double frequency =
        std::pow(args.base, -static_cast<double>(j) / static_cast<double>(half));
    for (std::int64_t p = 0; p < t; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos[p * half + j] = static_cast<float>(std::cos(angle));
      sin[p * half + j] = static_cast<float>(std::sin(angle));
    }
  }
}

namespace {

// The row stays in registers or the first cache between the rotation and the scaling.
float rotate_and_normalise(float* x, const float* cos, const float* sin, std::int64_t half,
                           float scale, float eps) {
  simd::F32 squares = simd::broadcast(0.0F);
  simd::for_lanes(half, [&](std::int64_t j, auto lanes) {
    const simd::F32 x1 = simd::load(x + j, lanes);
    const simd::F32 x2 = simd::load(x + half + j, lanes);
    const simd::F32 c = simd::load(cos + j, lanes);
    const simd::F32 s = simd::load(sin + j, lanes);
    const simd::F32 r1 = simd::fma(x1, c, x2 * s);
    const simd::F32 r2 = simd::fnma(x1, s, x2 * c);
    squares = simd::fma(r1, r1, simd::fma(r2, r2, squares));
    simd::store(x + j, r1, lanes);
    simd::store(x + half + j, r2, lanes);
  });
  const float mean = simd::sum(squares) / static_cast<float>(2 * half);
  const float rstd = 1.0F / std::sqrt(mean + eps);
  const simd::F32 factor = simd::broadcast(scale * rstd);
  simd::for_lanes(2 * half, [&](std::int64_t j, auto lanes) {
    simd::store(x + j, simd::load(x + j, lanes) * factor, lanes);
  });
  return rstd;
}

void backward_row(float* dx, const float* y, const float* cos, const float* sin, std::int64_t half,
                  float scale, float rstd) {
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

}  // namespace

void rotary_norm(const RotaryNormArgs& args) {
  const std::int64_t t = args.x.shape[1];
  const std::int64_t heads = args.x.shape[2];
  const std::int64_t h = args.x.shape[3];
  auto* x = args.x.as<float>();
  auto* rstd = args.rstd.as<float>();
  for (std::int64_t row = 0; row < args.rstd.numel(); ++row) {
    const std::int64_t table_row = (args.first_position + row / heads % t) * (h / 2);
    rstd[row] = rotate_and_normalise(x + row * h, args.cos.as<float>() + table_row,
                                     args.sin.as<float>() + table_row, h / 2, args.scale, args.eps);
  }
}

void rotary_norm_backward(const RotaryNormBackwardArgs& args) {
  const std::int64_t t = args.y.shape[1];
  const std::int64_t heads = args.y.shape[2];
  const std::int64_t h = args.y.shape[3];
  auto* dx = args.dx.as<float>();
  const auto* y = args.y.as<float>();
  const auto* rstd = args.rstd.as<float>();
  for (std::int64_t row = 0; row < args.rstd.numel(); ++row) {
    const std::int64_t table_row = row / heads % t * (h / 2);
    backward_row(dx + row * h, y + row * h, args.cos.as<float>() + table_row,
                 args.sin.as<float>() + table_row, h / 2, args.scale, rstd[row]);
  }
}

}  // namespace muo::host
