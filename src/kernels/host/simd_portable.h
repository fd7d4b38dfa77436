#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/host/simd_lanes.h"

// Specifies every function, without intrinsics, with vectors of four floats like those of NEON.
// simd_avx2.h and simd_avx512.h give the same bits, except for NaNs that result from arithmetic.
namespace muo::simd::portable {

namespace detail {
using Quad = float __attribute__((vector_size(16)));
using Pair = double __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Integers = std::int32_t __attribute__((vector_size(16)));
using Shorts = std::uint16_t __attribute__((vector_size(16)));
using WidePair = std::uint64_t __attribute__((vector_size(16)));
}  // namespace detail

struct F32 {
  detail::Quad q[4];
};
struct F64 {  // sixteen doubles
  detail::Pair p[8];
};
struct Halves {  // sixteen bf16 numbers
  detail::Shorts s[2];
};
// Sixteen 32-bit words, each in the lower half of 64 bits; only upper_half() uses the upper halves.
struct WideWords {
  WideWords() = default;
  explicit WideWords(std::uint32_t x) {  // in all lanes
    for (detail::WidePair& p : w)
      p = detail::WidePair{x, x};
  }
  detail::WidePair w[8];
};

namespace detail {
// Unrolled by hand: g++ does not vectorise calls in a loop over a vector's elements.
template <class F>
inline F32 each(const F& f, auto... x) {
  return {{f(x.q[0]...), f(x.q[1]...), f(x.q[2]...), f(x.q[3]...)}};
}
template <class F>
inline F64 each_pair(const F& f, auto... x) {
  return {{f(x.p[0]...), f(x.p[1]...), f(x.p[2]...), f(x.p[3]...), f(x.p[4]...), f(x.p[5]...),
           f(x.p[6]...), f(x.p[7]...)}};
}
inline Quad load(const float* p) {
  Quad q;
  std::memcpy(&q, p, sizeof q);
  return q;
}
inline Quad splat(float x) { return Quad{x, x, x, x}; }
inline Words words(Quad x) { return std::bit_cast<Words>(x); }
inline Quad floats(Words x) { return std::bit_cast<Quad>(x); }
inline Quad fma(Quad a, Quad b, Quad c) {
  return Quad{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
              __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
}
inline Pair fma(Pair a, Pair b, Pair c) {
  return Pair{__builtin_fma(a[0], b[0], c[0]), __builtin_fma(a[1], b[1], c[1])};
}
}  // namespace detail

inline F32 broadcast(float x) {
  const detail::Quad q = detail::splat(x);
  return {{q, q, q, q}};
}
inline F32 load(const float* p, AllLanes /*lanes*/ = {}) {
  return {{detail::load(p), detail::load(p + 4), detail::load(p + 8), detail::load(p + 12)}};
}
// The other lanes become zero.
inline F32 load(const float* p, FirstLanes lanes) {
  std::array<float, kLanes> some{};
  std::copy_n(p, lanes.count, some.data());
  return load(some.data());
}
inline void store(float* p, F32 a, AllLanes /*lanes*/ = {}) {
  for (const detail::Quad q : a.q) {
    std::memcpy(p, &q, sizeof q);
    p += 4;
  }
}
inline void store(float* p, F32 a, FirstLanes lanes) {
  std::array<float, kLanes> some;
  store(some.data(), a);
  std::copy_n(some.data(), lanes.count, p);
}
inline F32 keep(F32 a, AllLanes /*lanes*/, F32 /*other*/) { return a; }
// a in the first lanes, `other` in the rest.
inline F32 keep(F32 a, FirstLanes lanes, F32 other) {
  std::array<float, kLanes> both;
  store(both.data(), other);
  store(both.data(), a, lanes);
  return load(both.data());
}
inline F32 operator+(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x + y; }, a, b);
}
inline F32 operator-(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x - y; }, a, b);
}
inline F32 operator*(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x * y; }, a, b);
}
inline F32 operator/(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x / y; }, a, b);
}
inline F32 fma(F32 a, F32 b, F32 c) {  // a b + c
  return detail::each([](auto x, auto y, auto z) { return detail::fma(x, y, z); }, a, b, c);
}
inline F32 fnma(F32 a, F32 b, F32 c) {  // c - a b
  return detail::each([](auto x, auto y, auto z) { return detail::fma(-x, y, z); }, a, b, c);
}
// The result is b if a or b is NaN, or if both are zeros.
inline F32 min(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x < y ? x : y; }, a, b);
}
inline F32 max(F32 a, F32 b) {
  return detail::each([](auto x, auto y) { return x > y ? x : y; }, a, b);
}
inline F32 sqrt(F32 a) {
  return detail::each(
      [](auto x) {
        return detail::Quad{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]),
                            __builtin_sqrtf(x[3])};
      },
      a);
}
inline F32 round(F32 a) {  // to nearest, ties to even
  return detail::each(
      [](auto x) {
        return detail::Quad{__builtin_nearbyintf(x[0]), __builtin_nearbyintf(x[1]),
                            __builtin_nearbyintf(x[2]), __builtin_nearbyintf(x[3])};
      },
      a);
}
inline F32 select_less(F32 a, F32 b, F32 yes, F32 no) {  // a < b ? yes : no
  return detail::each([](auto x, auto y, auto s, auto t) { return x < y ? s : t; }, a, b, yes, no);
}
inline F32 abs(F32 a) {
  return detail::each([](auto x) { return detail::floats(detail::words(x) & 0x7FFFFFFFU); }, a);
}
inline F32 copy_sign(F32 magnitude, F32 sign) {  // magnitude >= 0
  return detail::each(
      [](auto x, auto y) {
        return detail::floats(detail::words(x) | (detail::words(y) & 0x80000000U));
      },
      magnitude, sign);
}
// a 2^n for an integer n in [-252, 254]; the result must be zero, normal or infinite.
inline F32 scale_by_power(F32 a, F32 n) {
  const auto power_of_two = [](detail::Integers k) {
    return std::bit_cast<detail::Quad>((k + 127) << 23);
  };
  return detail::each(
      [&](auto x, auto y) {
        // Two factors, because 2^n alone may not be a normal number.
        const auto k = __builtin_convertvector(y, detail::Integers);
        return x * power_of_two(k >> 1) * power_of_two(k - (k >> 1));
      },
      a, n);
}
// 2^n for the integer n in the low nine bits of `shifted`; higher bits are ignored.
inline F32 power_of_low_bits(F32 shifted) {
  return detail::each(
      [](auto x) {
        return detail::floats((detail::words(x) << 23) + std::bit_cast<std::uint32_t>(1.0F));
      },
      shifted);
}
// Adds lanes that are 8, 4, 2 and 1 apart, in this order.
inline float sum(F32 a) {
  const detail::Quad s = (a.q[0] + a.q[2]) + (a.q[1] + a.q[3]);
  return (s[0] + s[2]) + (s[1] + s[3]);
}
inline float max_of(F32 a) {
  const auto greater = [](auto x, auto y) { return x > y ? x : y; };
  const detail::Quad m = greater(greater(a.q[0], a.q[2]), greater(a.q[1], a.q[3]));
  return greater(greater(m[0], m[2]), greater(m[1], m[3]));
}

inline F64 zero_f64() { return {}; }
inline F64 widen(F32 a) {
  F64 x;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto four = __builtin_convertvector(a.q[i], detail::FourDoubles);
    x.p[2 * i] = __builtin_shufflevector(four, four, 0, 1);
    x.p[2 * i + 1] = __builtin_shufflevector(four, four, 2, 3);
  }
  return x;
}
inline F64 operator+(F64 a, F64 b) {
  return detail::each_pair([](auto x, auto y) { return x + y; }, a, b);
}
inline F64 fma(F64 a, F64 b, F64 c) {
  return detail::each_pair([](auto x, auto y, auto z) { return detail::fma(x, y, z); }, a, b, c);
}
inline double sum(F64 a) {  // in the order of the sum of floats
  const detail::Pair s =
      ((a.p[0] + a.p[4]) + (a.p[2] + a.p[6])) + ((a.p[1] + a.p[5]) + (a.p[3] + a.p[7]));
  return s[0] + s[1];
}

// Alternating elements of a and b: first those of the lower halves, then those of the upper halves.
inline std::pair<F32, F32> interleave(F32 a, F32 b) {
  const auto low = [](detail::Quad x, detail::Quad y) {
    return __builtin_shufflevector(x, y, 0, 4, 1, 5);
  };
  const auto high = [](detail::Quad x, detail::Quad y) {
    return __builtin_shufflevector(x, y, 2, 6, 3, 7);
  };
  return {{{low(a.q[0], b.q[0]), high(a.q[0], b.q[0]), low(a.q[1], b.q[1]), high(a.q[1], b.q[1])}},
          {{low(a.q[2], b.q[2]), high(a.q[2], b.q[2]), low(a.q[3], b.q[3]), high(a.q[3], b.q[3])}}};
}

inline Halves load_halves(const void* p) {
  const auto* bytes = static_cast<const char*>(p);
  Halves a;
  std::memcpy(&a.s[0], bytes, 16);
  std::memcpy(&a.s[1], bytes + 16, 16);
  return a;
}
inline void store_halves(void* p, Halves a) {
  auto* bytes = static_cast<char*>(p);
  std::memcpy(bytes, &a.s[0], 16);
  std::memcpy(bytes + 16, &a.s[1], 16);
}
// A bf16 number is the upper half of the same number in fp32.
inline F32 widen_bf16(Halves a) {
  const auto low = [](detail::Shorts s) {
    return std::bit_cast<detail::Quad>(
        __builtin_shufflevector(detail::Shorts{}, s, 0, 8, 1, 9, 2, 10, 3, 11));
  };
  const auto high = [](detail::Shorts s) {
    return std::bit_cast<detail::Quad>(
        __builtin_shufflevector(detail::Shorts{}, s, 4, 12, 5, 13, 6, 14, 7, 15));
  };
  return {{low(a.s[0]), high(a.s[0]), low(a.s[1]), high(a.s[1])}};
}
inline Halves narrow_bf16(F32 a) {  // to nearest, ties to even; NaNs become quiet
  const auto rounded = [](detail::Quad x) {
    const detail::Words bits = detail::words(x);
    const detail::Words nearest = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const auto is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return std::bit_cast<detail::Shorts>(is_nan ? bits | 0x400000U : nearest);
  };
  const auto upper = [&](detail::Quad x, detail::Quad y) {
    return __builtin_shufflevector(rounded(x), rounded(y), 1, 3, 5, 7, 9, 11, 13, 15);
  };
  return {{upper(a.q[0], a.q[1]), upper(a.q[2], a.q[3])}};
}

// Lane i is first + i, in 64 bits.
inline WideWords count_from(std::uint64_t first) {
  WideWords a;
  for (detail::WidePair& p : a.w) {
    p = detail::WidePair{first, first + 1};
    first += 2;
  }
  return a;
}
inline WideWords operator^(WideWords a, const WideWords& b) {
  for (std::size_t i = 0; i < 8; ++i)
    a.w[i] ^= b.w[i];
  return a;
}
inline WideWords upper_half(WideWords a) {
  for (detail::WidePair& p : a.w)
    p >>= 32;
  return a;
}
inline WideWords wide_product(WideWords a, std::uint32_t b) {  // all 64 bits
  for (detail::WidePair& p : a.w)
    p = (p & 0xFFFFFFFFU) * b;
  return a;
}
inline void store(std::uint32_t* words, const WideWords& a) {
  for (const detail::WidePair& p : a.w) {
    *words++ = static_cast<std::uint32_t>(p[0]);
    *words++ = static_cast<std::uint32_t>(p[1]);
  }
}

}  // namespace muo::simd::portable
