#pragma once

#include "kernels/host/simd_lanes.h"

#if defined(__AVX512F__)
#  include "kernels/host/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#  include "kernels/host/simd_avx2.h"
#else
namespace muo::simd {
inline namespace portable {}
}  // namespace muo::simd
#  include "kernels/host/simd_portable.h"
#endif

// Vectors of sixteen floats for the host kernels: one AVX-512 register, two AVX2 registers, or four
// registers of other CPUs. simd_portable.h specifies each function. Lanes, order of reductions and
// rounding are the same in every build; every multiply-add that is to be fused is written as fma().
namespace muo::simd {

// Within 1 ulp for results in the normal range; 0 for x < -87.33 (no denormal results, which would
// be slow), infinity for x > 88.73, NaN for NaN. Uses the reduction and polynomial of Moshier's
// Cephes library (expf).
inline F32 exp(F32 x) {
  const F32 clamped = min(broadcast(89.0F), max(broadcast(-88.0F), x));
  const F32 n = round(clamped * broadcast(1.44269504F));
  F32 r = fnma(n, broadcast(0.693359375F), clamped);
  r = fma(n, broadcast(2.12194440e-4F), r);
  F32 p = broadcast(1.9875691500e-4F);
  p = fma(p, r, broadcast(1.3981999507e-3F));
  p = fma(p, r, broadcast(8.3334519073e-3F));
  p = fma(p, r, broadcast(4.1665795894e-2F));
  p = fma(p, r, broadcast(1.6666665459e-1F));
  p = fma(p, r, broadcast(5.0000001201e-1F));
  p = fma(p, r * r, r) + broadcast(1.0F);
  return select_less(x, broadcast(-87.33F), broadcast(0.0F), scale_by_power(p, n));
}

// 2^x for x < 127.5, within 1 ulp; 0 for x < -126, NaN for NaN. Cheaper than exp().
inline F32 exp2(F32 x) {
  const F32 magic = broadcast(12582912.0F);  // 1.5 2^23: the low bits of the sum are round(x)
  const F32 shifted = x + magic;
  const F32 r = x - (shifted - magic);
  F32 p = broadcast(1.535336188319500e-4F);  // Cephes, exp2f
  p = fma(p, r, broadcast(1.339887440266574e-3F));
  p = fma(p, r, broadcast(9.618437357674640e-3F));
  p = fma(p, r, broadcast(5.550332471162809e-2F));
  p = fma(p, r, broadcast(2.402264791363012e-1F));
  p = fma(p, r, broadcast(6.931472028550421e-1F));
  p = fma(p, r, broadcast(1.0F));
  return select_less(x, broadcast(-126.0F), broadcast(0.0F), p * power_of_low_bits(shifted));
}

// Within 2 ulp; NaN for NaN. Near zero, the polynomial is that of Cephes' tanhf.
inline F32 tanh(F32 x) {
  const F32 magnitude = abs(x);
  const F32 z = x * x;
  F32 p = broadcast(-5.70498872745e-3F);
  p = fma(p, z, broadcast(2.06390887954e-2F));
  p = fma(p, z, broadcast(-5.37397155531e-2F));
  p = fma(p, z, broadcast(1.33314422036e-1F));
  p = fma(p, z, broadcast(-3.33332819422e-1F));
  const F32 near = fma(p * z, magnitude, magnitude);
  const F32 e = exp(magnitude + magnitude);
  const F32 far = broadcast(1.0F) - broadcast(2.0F) / (e + broadcast(1.0F));
  return copy_sign(select_less(magnitude, broadcast(0.625F), near, far), x);
}

}  // namespace muo::simd
