#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/host/simd.h"

// bf16 in memory, fp32 in registers: only loads and stores of a kernel depend on the storage type.
// Rounds to nearest, ties to even, with the bits of to_bf16 (base/dtype.h); the CPU's instruction
// (vcvtneps2bf16) would flush denormals.
namespace muo::simd {

inline F32 load(const BF16* p, AllLanes /*lanes*/ = {}) { return widen_bf16(load_halves(p)); }
// The other lanes become zero.
inline F32 load(const BF16* p, FirstLanes lanes) {
  std::array<BF16, kLanes> some{};
  std::copy_n(p, lanes.count, some.data());
  return load(some.data());
}
inline void store(BF16* p, F32 a, AllLanes /*lanes*/ = {}) { store_halves(p, narrow_bf16(a)); }
inline void store(BF16* p, F32 a, FirstLanes lanes) {
  std::array<BF16, kLanes> some;
  store(some.data(), a);
  std::copy_n(some.data(), lanes.count, p);
}

// Rounds every lane to bf16, as storing and loading it does.
inline F32 round_to_bf16(F32 a) { return widen_bf16(narrow_bf16(a)); }

// Rounds every lane to T, as storing and loading it does.
template <class T>
inline F32 rounded(F32 a) {
  if constexpr (std::is_same_v<T, BF16>)
    return round_to_bf16(a);
  else
    return a;
}

// y <- x, converted to y's type.
template <class Y, class X>
inline void copy(Y* y, const X* x, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
}

// y <- a x. y may be x.
template <class Y, class X>
inline void scale(Y* y, float a, const X* x, std::int64_t n) {
  const F32 factor = broadcast(a);
  for_lanes(n,
            [&](std::int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * factor, lanes); });
}

// z <- a x + y. z may be x or y.
template <class Z, class X, class Y>
inline void add_scaled(Z* z, float a, const X* x, const Y* y, std::int64_t n) {
  const F32 factor = broadcast(a);
  for_lanes(n, [&](std::int64_t i, auto lanes) {
    store(z + i, fma(factor, load(x + i, lanes), load(y + i, lanes)), lanes);
  });
}

// Sum of x(i) y(i) in 64 partial sums, which are added in a fixed order. x(i, lanes) and y(i,
// lanes) return the elements from i on.
template <class X, class Y>
inline float dot_of(const X& x, const Y& y, std::int64_t n) {
  constexpr AllLanes kAll;
  F32 s0 = broadcast(0.0F);
  F32 s1 = s0;
  F32 s2 = s0;
  F32 s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = fma(x(i, kAll), y(i, kAll), s0);
    s1 = fma(x(i + kLanes, kAll), y(i + kLanes, kAll), s1);
    s2 = fma(x(i + 2 * kLanes, kAll), y(i + 2 * kLanes, kAll), s2);
    s3 = fma(x(i + 3 * kLanes, kAll), y(i + 3 * kLanes, kAll), s3);
  }
  for_lanes(n - i,
            [&](std::int64_t j, auto lanes) { s0 = fma(x(i + j, lanes), y(i + j, lanes), s0); });
  return sum((s0 + s1) + (s2 + s3));
}
template <class X, class Y>
inline float dot(const X* x, const Y* y, std::int64_t n) {
  return dot_of([=](std::int64_t i, auto lanes) { return load(x + i, lanes); },
                [=](std::int64_t i, auto lanes) { return load(y + i, lanes); }, n);
}

}  // namespace muo::simd
