#pragma once

#include "kernels/host/simd_x86.h"

// The functions of simd_portable.h in AVX-512.
namespace muo::simd {
inline namespace avx512 {

struct F32 {
  __m512 v;
};
struct F64 {
  __m512d lo, hi;
};

namespace detail {
constexpr __mmask16 kAll = 0xFFFF;
}  // namespace detail

inline __mmask16 first_mask(FirstLanes lanes) {
  return static_cast<__mmask16>((1U << static_cast<unsigned>(lanes.count)) - 1U);
}
inline F32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline F32 load(const float* p, AllLanes /*lanes*/ = {}) { return {_mm512_loadu_ps(p)}; }
inline F32 load(const float* p, FirstLanes lanes) {
  return {_mm512_maskz_loadu_ps(first_mask(lanes), p)};
}
inline void store(float* p, F32 a, AllLanes /*lanes*/ = {}) { _mm512_storeu_ps(p, a.v); }
inline void store(float* p, F32 a, FirstLanes lanes) {
  _mm512_mask_storeu_ps(p, first_mask(lanes), a.v);
}
inline F32 keep(F32 a, AllLanes /*lanes*/, F32 /*other*/) { return a; }
inline F32 keep(F32 a, FirstLanes lanes, F32 other) {
  return {_mm512_mask_blend_ps(first_mask(lanes), other.v, a.v)};
}
inline F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
inline F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
inline F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
inline F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm512_mask_min_ps(a.v, detail::kAll, a.v, b.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm512_mask_max_ps(a.v, detail::kAll, a.v, b.v)}; }
inline F32 sqrt(F32 a) { return {_mm512_mask_sqrt_ps(a.v, detail::kAll, a.v)}; }
inline F32 round(F32 a) {
  return {_mm512_mask_roundscale_ps(a.v, detail::kAll, a.v,
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F32 select_less(F32 a, F32 b, F32 yes, F32 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
inline F32 abs(F32 a) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7FFFFFFF)))};
}
inline F32 copy_sign(F32 magnitude, F32 sign) {
  const __m512i bit = _mm512_and_si512(_mm512_castps_si512(sign.v),
                                       _mm512_set1_epi32(static_cast<int>(0x80000000U)));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude.v), bit))};
}
inline F32 scale_by_power(F32 a, F32 n) {
  return {_mm512_mask_scalef_ps(a.v, detail::kAll, a.v, n.v)};
}
inline F32 power_of_low_bits(F32 shifted) {
  const __m512i one = _mm512_castps_si512(_mm512_set1_ps(1.0F));
  const __m512i bits = _mm512_castps_si512(shifted.v);
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_mask_slli_epi32(bits, detail::kAll, bits, 23), one))};
}

namespace detail {
// Uses masked intrinsics: g++ 12's unmasked ones read an undefined register and warn about it.
template <int kHalf>
inline __m256 half(__m512 a) {
  const __m512d bits = _mm512_castps_pd(a);
  return _mm256_castpd_ps(_mm512_mask_extractf64x4_pd(_mm256_setzero_pd(), 0xF, bits, kHalf));
}
inline __m512d widen(__m256 a) { return _mm512_mask_cvtps_pd(_mm512_setzero_pd(), 0xFF, a); }
}  // namespace detail

inline float sum(F32 a) { return x86::sum(detail::half<0>(a.v) + detail::half<1>(a.v)); }
inline float max_of(F32 a) {
  return x86::max_of(_mm256_max_ps(detail::half<0>(a.v), detail::half<1>(a.v)));
}

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

inline std::pair<F32, F32> interleave(F32 a, F32 b) {
  return {
      {__builtin_shufflevector(a.v, b.v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)},
      {__builtin_shufflevector(a.v, b.v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                               31)}};
}

inline F32 widen_bf16(Halves a) {
  return {_mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(detail::kAll, _mm512_maskz_cvtepu16_epi32(detail::kAll, a), 16))};
}
inline Halves narrow_bf16(F32 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd =
      _mm512_and_si512(_mm512_maskz_srli_epi32(detail::kAll, bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i chosen =
      _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), rounded, quiet);
  return _mm512_maskz_cvtepi32_epi16(detail::kAll,
                                     _mm512_maskz_srli_epi32(detail::kAll, chosen, 16));
}

struct WideWords {
  WideWords() = default;
  explicit WideWords(std::uint32_t x) : lo(_mm512_set1_epi64(x)), hi(lo) {}
  WideWords(__m512i lower, __m512i upper) : lo(lower), hi(upper) {}
  __m512i lo, hi;
};
inline WideWords count_from(std::uint64_t first) {
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const auto begin = static_cast<long long>(first);
  return {_mm512_add_epi64(_mm512_set1_epi64(begin), lanes),
          _mm512_add_epi64(_mm512_set1_epi64(begin + 8), lanes)};
}
inline WideWords operator^(WideWords a, WideWords b) {
  return {_mm512_xor_si512(a.lo, b.lo), _mm512_xor_si512(a.hi, b.hi)};
}
inline WideWords upper_half(WideWords a) {
  return {_mm512_maskz_srli_epi64(0xFF, a.lo, 32), _mm512_maskz_srli_epi64(0xFF, a.hi, 32)};
}
inline WideWords wide_product(WideWords a, std::uint32_t b) {
  const __m512i factor = _mm512_set1_epi64(b);
  return {_mm512_maskz_mul_epu32(0xFF, a.lo, factor), _mm512_maskz_mul_epu32(0xFF, a.hi, factor)};
}
inline void store(std::uint32_t* words, WideWords a) {
  auto* halves = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(halves, _mm512_maskz_cvtepi64_epi32(0xFF, a.lo));
  _mm256_storeu_si256(halves + 1, _mm512_maskz_cvtepi64_epi32(0xFF, a.hi));
}

}  // namespace avx512
}  // namespace muo::simd
