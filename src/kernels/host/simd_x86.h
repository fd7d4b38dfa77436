#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/host/simd_lanes.h"

// Functions common to AVX2 and AVX-512: the end of reductions, and bf16 in memory.
namespace muo::simd {
inline namespace x86 {

inline float horizontal(__m128 a, bool add) {
  __m128 b = _mm_movehl_ps(a, a);
  a = add ? a + b : _mm_max_ps(a, b);
  b = _mm_shuffle_ps(a, a, 1);
  return _mm_cvtss_f32(add ? a + b : _mm_max_ps(a, b));
}
inline float sum(__m256 a) {
  return horizontal(_mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1), true);
}
inline float max_of(__m256 a) {
  return horizontal(_mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)), false);
}

using Halves = __m256i;
inline Halves load_halves(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_halves(void* p, Halves a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }

}  // namespace x86
}  // namespace muo::simd
