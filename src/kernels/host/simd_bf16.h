#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/host/simd.h"

// bf16 in memory, fp32 in registers: with these a kernel's loads and stores are the only places
// that know the storage type. Rounds to nearest, ties to even, as base/dtype.h's to_bf16 does, bit
// for bit: the CPU's own conversion (vcvtneps2bf16) would flush denormals.
namespace muo::simd {
namespace detail {

#ifdef __AVX512F__

constexpr __mmask16 kAll = 0xFFFF;

inline F32 widen_bf16(__m256i halves) {
  return {_mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, halves), 16))};
}
inline __m256i narrow_bf16(F32 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd =
      _mm512_and_si512(_mm512_maskz_srli_epi32(kAll, bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __m512i chosen =
      _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), rounded, quiet);
  return _mm512_maskz_cvtepi32_epi16(kAll, _mm512_maskz_srli_epi32(kAll, chosen, 16));
}

#else

inline __m256 widen_bf16(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline F32 widen_bf16(__m256i halves) {
  return {widen_bf16(_mm256_castsi256_si128(halves)),
          widen_bf16(_mm256_extracti128_si256(halves, 1))};
}
inline __m256i upper_halves(__m256 a) {  // rounded, in the low 16 bits
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
inline __m256i narrow_bf16(F32 a) {
  const __m256i packed = _mm256_packus_epi32(upper_halves(a.lo), upper_halves(a.hi));
  return _mm256_permute4x64_epi64(packed, 0xD8);  // packing works on 128-bit halves
}

#endif

}  // namespace detail

inline F32 load(const BF16* p, AllLanes /*lanes*/ = {}) {
  return detail::widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// The other lanes become zero.
inline F32 load(const BF16* p, FirstLanes lanes) {
  std::array<BF16, kLanes> some{};
  std::copy_n(p, lanes.count, some.data());
  return load(some.data());
}
inline void store(BF16* p, F32 a, AllLanes /*lanes*/ = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), detail::narrow_bf16(a));
}
inline void store(BF16* p, F32 a, FirstLanes lanes) {
  std::array<BF16, kLanes> some;
  store(some.data(), a);
  std::copy_n(some.data(), lanes.count, p);
}

// What storing and loading bf16 makes of every lane.
inline F32 round_to_bf16(F32 a) { return detail::widen_bf16(detail::narrow_bf16(a)); }

// What storing and loading T makes of every lane.
template <class T>
inline F32 rounded(F32 a) {
  if constexpr (std::is_same_v<T, BF16>)
    return round_to_bf16(a);
  else
    return a;
}

// Sum of x[i] y[i] in 64 partial sums, folded in a fixed order.
template <class X, class Y>
inline float dot(const X* x, const Y* y, std::int64_t n) {
  F32 s0 = broadcast(0.0F);
  F32 s1 = s0;
  F32 s2 = s0;
  F32 s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = fma(load(x + i), load(y + i), s0);
    s1 = fma(load(x + i + kLanes), load(y + i + kLanes), s1);
    s2 = fma(load(x + i + 2 * kLanes), load(y + i + 2 * kLanes), s2);
    s3 = fma(load(x + i + 3 * kLanes), load(y + i + 3 * kLanes), s3);
  }
  for_lanes(n - i, [&](std::int64_t j, auto lanes) {
    s0 = fma(load(x + i + j, lanes), load(y + i + j, lanes), s0);
  });
  return sum((s0 + s1) + (s2 + s3));
}

}  // namespace muo::simd
