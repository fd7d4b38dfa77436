#pragma once

#include "kernels/host/simd_x86.h"

// The functions of simd_portable.h in AVX2.
namespace muo::simd {
inline namespace avx2 {

struct F32 {
  __m256 lo, hi;
};
struct F64 {
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
inline F32 keep(F32 a, FirstLanes lanes, F32 other) {
  const detail::Masks m = detail::first_masks(lanes);
  return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(m.hi))};
}
inline F32 operator+(F32 a, F32 b) { return {a.lo + b.lo, a.hi + b.hi}; }
inline F32 operator-(F32 a, F32 b) { return {a.lo - b.lo, a.hi - b.hi}; }
inline F32 operator*(F32 a, F32 b) { return {a.lo * b.lo, a.hi * b.hi}; }
inline F32 operator/(F32 a, F32 b) { return {a.lo / b.lo, a.hi / b.hi}; }
inline F32 fma(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32 fnma(F32 a, F32 b, F32 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline F32 round(F32 a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F32 select_less(F32 a, F32 b, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline F32 abs(F32 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32 copy_sign(F32 magnitude, F32 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0F);
  return {_mm256_or_ps(magnitude.lo, _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(magnitude.hi, _mm256_and_ps(bit, sign.hi))};
}

namespace detail {
inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale_by_power(__m256 a, __m256 n) {
  // Two factors, because 2^n alone may not be a normal number.
  const __m256i k = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(k, 1);
  return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(k, half));
}
inline __m256d lower(__m256 a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
inline __m256d upper(__m256 a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
inline __m256 power_of_low_bits(__m256 shifted) {
  const __m256i one = _mm256_castps_si256(_mm256_set1_ps(1.0F));
  const __m256i bits = _mm256_castps_si256(shifted);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(bits, 23), one));
}
}  // namespace detail

inline F32 scale_by_power(F32 a, F32 n) {
  return {detail::scale_by_power(a.lo, n.lo), detail::scale_by_power(a.hi, n.hi)};
}

inline F32 power_of_low_bits(F32 shifted) {
  return {detail::power_of_low_bits(shifted.lo), detail::power_of_low_bits(shifted.hi)};
}

inline float sum(F32 a) { return x86::sum(a.lo + a.hi); }
inline float max_of(F32 a) { return x86::max_of(_mm256_max_ps(a.lo, a.hi)); }

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

inline std::pair<F32, F32> interleave(F32 a, F32 b) {
  const auto zip = [](__m256 x, __m256 y) {
    const __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
    return F32{_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
  };
  return {zip(a.lo, b.lo), zip(a.hi, b.hi)};
}

namespace detail {
inline __m256 widen_bf16(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline __m256i upper_halves(__m256 a) {  // rounded to bf16, in the low 16 bits
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
}  // namespace detail

inline F32 widen_bf16(Halves a) {
  return {detail::widen_bf16(_mm256_castsi256_si128(a)),
          detail::widen_bf16(_mm256_extracti128_si256(a, 1))};
}
inline Halves narrow_bf16(F32 a) {
  const __m256i packed =
      _mm256_packus_epi32(detail::upper_halves(a.lo), detail::upper_halves(a.hi));
  return _mm256_permute4x64_epi64(packed, 0xD8);  // undoes the packing by 128-bit halves
}

struct WideWords {
  WideWords() = default;
  explicit WideWords(std::uint32_t x) {
    for (__m256i& four : w)
      four = _mm256_set1_epi64x(x);
  }
  __m256i w[4];
};
inline WideWords count_from(std::uint64_t first) {
  __m256i four = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first)),
                                  _mm256_set_epi64x(3, 2, 1, 0));
  WideWords a;
  for (__m256i& to : a.w) {
    to = four;
    four = _mm256_add_epi64(four, _mm256_set1_epi64x(4));
  }
  return a;
}
inline WideWords operator^(WideWords a, const WideWords& b) {
  for (std::size_t i = 0; i < 4; ++i)
    a.w[i] = _mm256_xor_si256(a.w[i], b.w[i]);
  return a;
}
inline WideWords upper_half(WideWords a) {
  for (__m256i& four : a.w)
    four = _mm256_srli_epi64(four, 32);
  return a;
}
inline WideWords wide_product(WideWords a, std::uint32_t b) {
  for (__m256i& four : a.w)
    four = _mm256_mul_epu32(four, _mm256_set1_epi64x(b));
  return a;
}
inline void store(std::uint32_t* words, const WideWords& a) {
  for (std::size_t i = 0; i < 4; i += 2) {
    const __m256i even = _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a.w[i]), _mm256_castsi256_ps(a.w[i + 1]), 0x88));
    const __m256i in_order = _mm256_permute4x64_epi64(even, 0xD8);  // in order of 128-bit halves
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 4 * i), in_order);
  }
}

}  // namespace avx2
}  // namespace muo::simd
