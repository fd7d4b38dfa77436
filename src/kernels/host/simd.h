#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

// Vectors of sixteen floats for the host kernels: one AVX-512 register, or two AVX2 ones. Lanes,
// order of reductions and rounding are the same in both builds: every multiply-add that is meant
// to be fused is written as fma().
namespace muo::simd {

inline constexpr std::int64_t kLanes = 16;

// How many lanes a load or store touches: all, or the first `count`, 0 < count < kLanes.
struct AllLanes {};
struct FirstLanes {
  std::int64_t count;
};

// body(i, lanes) for i = 0, 16, 32, ... below n; only the last call may get FirstLanes.
template <class Body>
inline void for_lanes(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body(i, AllLanes{});
  if (i < n) body(i, FirstLanes{n - i});
}

#ifdef __AVX512F__

struct F32 {
  __m512 v;
};
struct F64 {  // sixteen doubles
  __m512d lo, hi;
};

inline __mmask16 first_mask(FirstLanes lanes) {
  return static_cast<__mmask16>((1U << static_cast<unsigned>(lanes.count)) - 1U);
}
inline F32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline F32 load(const float* p, AllLanes /*lanes*/ = {}) { return {_mm512_loadu_ps(p)}; }
// The other lanes become zero.
inline F32 load(const float* p, FirstLanes lanes) {
  return {_mm512_maskz_loadu_ps(first_mask(lanes), p)};
}
inline void store(float* p, F32 a, AllLanes /*lanes*/ = {}) { _mm512_storeu_ps(p, a.v); }
inline void store(float* p, F32 a, FirstLanes lanes) {
  _mm512_mask_storeu_ps(p, first_mask(lanes), a.v);
}
inline F32 keep(F32 a, AllLanes /*lanes*/, F32 /*other*/) { return a; }
// `other` in the lanes that are not among the first.
inline F32 keep(F32 a, FirstLanes lanes, F32 other) {
  return {_mm512_mask_blend_ps(first_mask(lanes), other.v, a.v)};
}
inline F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
inline F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
inline F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
inline F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a b + c
inline F32 fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a b
// If either is NaN, the result is b.
inline F32 min(F32 a, F32 b) {
  return {_mm512_mask_min_ps(a.v, static_cast<__mmask16>(-1), a.v, b.v)};
}
inline F32 max(F32 a, F32 b) {
  return {_mm512_mask_max_ps(a.v, static_cast<__mmask16>(-1), a.v, b.v)};
}
inline F32 sqrt(F32 a) { return {_mm512_mask_sqrt_ps(a.v, static_cast<__mmask16>(-1), a.v)}; }
inline F32 round(F32 a) {  // to nearest, ties to even
  return {_mm512_mask_roundscale_ps(a.v, static_cast<__mmask16>(-1), a.v,
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F32 select_less(F32 a, F32 b, F32 yes, F32 no) {  // a < b ? yes : no
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
inline F32 abs(F32 a) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7FFFFFFF)))};
}
inline F32 copy_sign(F32 magnitude, F32 sign) {  // magnitude >= 0
  const __m512i bit = _mm512_and_si512(_mm512_castps_si512(sign.v),
                                       _mm512_set1_epi32(static_cast<int>(0x80000000U)));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude.v), bit))};
}
// a 2^n for an integer n of [-252, 254], where the result is zero, normal or infinite.
inline F32 scale_by_power(F32 a, F32 n) {
  return {_mm512_mask_scalef_ps(a.v, static_cast<__mmask16>(-1), a.v, n.v)};
}
// 2^n for the integer n in the low bits of `shifted`; bits above the ninth do not count.
inline F32 power_of_low_bits(F32 shifted) {
  const __m512i one = _mm512_castps_si512(_mm512_set1_ps(1.0F));
  const __m512i bits = _mm512_castps_si512(shifted.v);
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_mask_slli_epi32(bits, static_cast<__mmask16>(-1), bits, 23), one))};
}

namespace detail {
// Masked forms: g++ 12's plain ones read an undefined register and warn about it.
template <int kHalf>
inline __m256 half(__m512 a) {
  const __m512d bits = _mm512_castps_pd(a);
  return _mm256_castpd_ps(_mm512_mask_extractf64x4_pd(_mm256_setzero_pd(), 0xF, bits, kHalf));
}
inline __m512d widen(__m256 a) { return _mm512_mask_cvtps_pd(_mm512_setzero_pd(), 0xFF, a); }
inline __m256 fold_add(F32 a) { return half<0>(a.v) + half<1>(a.v); }
inline __m256 fold_max(F32 a) { return _mm256_max_ps(half<0>(a.v), half<1>(a.v)); }
}  // namespace detail

inline F64 zero_f64() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline F64 widen(F32 a) {
  return {detail::widen(detail::half<0>(a.v)), detail::widen(detail::half<1>(a.v))};
}
inline F64 operator+(F64 a, F64 b) { return {a.lo + b.lo, a.hi + b.hi}; }
inline F64 fma(F64 a, F64 b, F64 c) {
  return {_mm512_fmadd_pd(a.lo, b.lo, c.lo), _mm512_fmadd_pd(a.hi, b.hi, c.hi)};
}
inline double sum(F64 a) {
  alignas(64) std::array<double, 8> s;
  _mm512_store_pd(s.data(), a.lo + a.hi);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

#else

struct F32 {
  __m256 lo, hi;
};
struct F64 {  // sixteen doubles
  __m256d a, b, c, d;
};

namespace detail {
struct Masks {
  __m256i lo, hi;
};
inline Masks first_masks(FirstLanes lanes) {
  alignas(64) static constexpr std::array<std::int32_t, 32> kOnes = {
      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};  // then zeros
  const std::int32_t* p = kOnes.data() + (kLanes - lanes.count);
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
}  // namespace detail

inline F32 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p, AllLanes /*lanes*/ = {}) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
// The other lanes become zero.
inline F32 load(const float* p, FirstLanes lanes) {
  const detail::Masks m = detail::first_masks(lanes);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
inline void store(float* p, F32 a, AllLanes /*lanes*/ = {}) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store(float* p, F32 a, FirstLanes lanes) {
  const detail::Masks m = detail::first_masks(lanes);
  _mm256_maskstore_ps(p, m.lo, a.lo);
  _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}
inline F32 keep(F32 a, AllLanes /*lanes*/, F32 /*other*/) { return a; }
// `other` in the lanes that are not among the first.
inline F32 keep(F32 a, FirstLanes lanes, F32 other) {
  const detail::Masks m = detail::first_masks(lanes);
  return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(m.hi))};
}
inline F32 operator+(F32 a, F32 b) { return {a.lo + b.lo, a.hi + b.hi}; }
inline F32 operator-(F32 a, F32 b) { return {a.lo - b.lo, a.hi - b.hi}; }
inline F32 operator*(F32 a, F32 b) { return {a.lo * b.lo, a.hi * b.hi}; }
inline F32 operator/(F32 a, F32 b) { return {a.lo / b.lo, a.hi / b.hi}; }
inline F32 fma(F32 a, F32 b, F32 c) {  // a b + c
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32 fnma(F32 a, F32 b, F32 c) {  // c - a b
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
// If either is NaN, the result is b.
inline F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline F32 round(F32 a) {  // to nearest, ties to even
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F32 select_less(F32 a, F32 b, F32 yes, F32 no) {  // a < b ? yes : no
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline F32 abs(F32 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32 copy_sign(F32 magnitude, F32 sign) {  // magnitude >= 0
  const __m256 bit = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(magnitude.lo, _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(magnitude.hi, _mm256_and_ps(bit, sign.hi))};
}

namespace detail {
inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale_by_power(__m256 a, __m256 n) {
  // Two factors, as 2^n alone may not be a normal number.
  const __m256i k = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(k, 1);
  return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(k, half));
}
inline __m256d lower(__m256 a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
inline __m256d upper(__m256 a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
inline __m256 fold_add(F32 a) { return a.lo + a.hi; }
inline __m256 fold_max(F32 a) { return _mm256_max_ps(a.lo, a.hi); }
}  // namespace detail

// a 2^n for an integer n of [-252, 254], where the result is zero, normal or infinite.
inline F32 scale_by_power(F32 a, F32 n) {
  return {detail::scale_by_power(a.lo, n.lo), detail::scale_by_power(a.hi, n.hi)};
}

namespace detail {
inline __m256 power_of_low_bits(__m256 shifted) {
  const __m256i one = _mm256_castps_si256(_mm256_set1_ps(1.0F));
  const __m256i bits = _mm256_castps_si256(shifted);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(bits, 23), one));
}
}  // namespace detail

// 2^n for the integer n in the low bits of `shifted`; bits above the ninth do not count.
inline F32 power_of_low_bits(F32 shifted) {
  return {detail::power_of_low_bits(shifted.lo), detail::power_of_low_bits(shifted.hi)};
}

inline F64 zero_f64() {
  const __m256d zero = _mm256_setzero_pd();
  return {zero, zero, zero, zero};
}
inline F64 widen(F32 a) {
  return {detail::lower(a.lo), detail::upper(a.lo), detail::lower(a.hi), detail::upper(a.hi)};
}
inline F64 operator+(F64 x, F64 y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
inline F64 fma(F64 x, F64 y, F64 z) {
  return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b),
          _mm256_fmadd_pd(x.c, y.c, z.c), _mm256_fmadd_pd(x.d, y.d, z.d)};
}
inline double sum(F64 x) {
  alignas(32) std::array<double, 4> s;
  _mm256_store_pd(s.data(), (x.a + x.c) + (x.b + x.d));
  return (s[0] + s[2]) + (s[1] + s[3]);
}

#endif

namespace detail {
inline float horizontal(__m128 a, bool add) {
  __m128 b = _mm_movehl_ps(a, a);
  a = add ? a + b : _mm_max_ps(a, b);
  b = _mm_shuffle_ps(a, a, 1);
  return _mm_cvtss_f32(add ? a + b : _mm_max_ps(a, b));
}
}  // namespace detail

inline float sum(F32 a) {
  const __m256 h = detail::fold_add(a);
  return detail::horizontal(_mm256_castps256_ps128(h) + _mm256_extractf128_ps(h, 1), true);
}
inline float max_of(F32 a) {
  const __m256 h = detail::fold_max(a);
  return detail::horizontal(_mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)),
                            false);
}

// Within 1 ulp for results in the normal range; 0 for x < -87.33 (no denormal results, which
// would be slow), infinity for x > 88.73, NaN for NaN. Reduction and polynomial of Moshier's
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

// Within 2 ulp; NaN for NaN. Near zero the polynomial of Cephes' tanhf.
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
