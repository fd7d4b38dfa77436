#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/dtype.h"
#include "runtime/cuda/launch.h"

#ifndef MUO_SIMT
#  include <cuda_bf16.h>
#endif

namespace muo::cuda {

// Elements of one 16-byte access: 4 of fp32, 8 of bf16.
template <class T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

// N neighbouring elements, converted to fp32.
template <int N>
struct Pack {
  float v[N];
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(BF16 x) {
  return __uint_as_float(std::uint32_t{x.bits} << 16);
}

// Rounds both to nearest, ties to even; `low` is in the lower half, first in memory.
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
#ifdef MUO_SIMT
  return to_bf16(low).bits | std::uint32_t{to_bf16(high).bits} << 16;
#else
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
#endif
}

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, BF16>)
    return {static_cast<std::uint16_t>(round_pair(x, 0.0F))};
  else
    return x;
}

// N is 1, or fills an access of 16 or 8 bytes at an equally aligned address.
template <int N, class T>
__device__ __forceinline__ Pack<N> load(const T* p) {
  Pack<N> out;
  if constexpr (N == 1) {
    out.v[0] = to_float(*p);
  } else {
    constexpr int kWords = N * static_cast<int>(sizeof(T)) / 4;
    static_assert(kWords == 4 || kWords == 2);
    using Access = std::conditional_t<kWords == 4, uint4, uint2>;
    const Access raw = *reinterpret_cast<const Access*>(p);
    std::uint32_t words[kWords] = {raw.x, raw.y};
    if constexpr (kWords == 4) {
      words[2] = raw.z;
      words[3] = raw.w;
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      if constexpr (std::is_same_v<T, BF16>) {
        out.v[2 * i] = __uint_as_float(words[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
      } else {
        out.v[i] = __uint_as_float(words[i]);
      }
  }
  return out;
}

template <int N, class T>
__device__ __forceinline__ void store(T* p, const Pack<N>& x) {
  if constexpr (N == 1) {
    *p = from_float<T>(x.v[0]);
  } else {
    static_assert(N == kWidth<T>);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if constexpr (std::is_same_v<T, BF16>)
        words[i] = round_pair(x.v[2 * i], x.v[2 * i + 1]);
      else
        words[i] = __float_as_uint(x.v[i]);
    *reinterpret_cast<uint4*>(p) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// x as it is after a store to T and a load.
template <class T, int N>
__device__ __forceinline__ Pack<N> rounded(const Pack<N>& x) {
  Pack<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i)
    out.v[i] = to_float(from_float<T>(x.v[i]));
  return out;
}

// Fixed order: element by element.
template <int N>
__device__ __forceinline__ float dot(const Pack<N>& a, const Pack<N>& b, float sum) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    sum = fmaf(a.v[i], b.v[i], sum);
  return sum;
}

// y + a x, with one rounding, and a x, element by element.
template <int N>
__device__ __forceinline__ Pack<N> add_scaled(float a, const Pack<N>& x, Pack<N> y) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    y.v[i] = fmaf(a, x.v[i], y.v[i]);
  return y;
}
template <int N>
__device__ __forceinline__ Pack<N> scaled(float a, Pack<N> x) {
#pragma unroll
  for (float& v : x.v)
    v *= a;
  return x;
}

// True if rows of `length` elements of T at these addresses can be read 16 bytes at a time. An
// absent tensor (null) is ignored.
template <class T>
bool vectors_fit(std::int64_t length, std::initializer_list<const void*> addresses) {
  bool fit = length % kWidth<T> == 0;
  for (const void* p : addresses)
    fit = fit && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  return fit;
}

// The same for N elements as load_wide() reads them: with accesses of less than 16 bytes if N
// elements are smaller.
template <int N, class T>
bool vector_fits(const T* p) {
  constexpr std::size_t kBytes = std::min<std::size_t>(16, N * sizeof(T));
  return reinterpret_cast<std::uintptr_t>(p) % kBytes == 0;
}

// Calls body.operator()<N>() with the number of elements per access.
template <class T, class Body>
void with_width(bool vectors, const Body& body) {
  if (vectors)
    body.template operator()<kWidth<T>>();
  else
    body.template operator()<1>();
}

}  // namespace muo::cuda
