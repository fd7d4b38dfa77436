#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/host/simd_bf16.h"

// What both directions of the host attention are made of.
//
// A block of kQueries queries meets tiles of kKeys keys. Scores and probabilities of a tile are
// kept transposed, (keys, queries), with queries along the SIMD lanes: maximum, exponential, sum
// and mask are then vertical operations, and all five matrix products of the two directions are the
// same micro-kernel, whose one operand is broadcast and whose other operand is read along lanes:
//   S^T  = K Q^T     dP^T = V dO^T     O^T += V^T P^T     dQ^T += K^T dS^T   lanes: queries
//   dV  += P^T dO    dK  += dS^T Q                                           lanes: features
//
// Tensors of bf16 are widened when they are packed. P and dS are then rounded to bf16 before they
// enter a product, as the operands of a GPU's matrix units are; everything else is fp32.
namespace muo::host {

using Index = std::int64_t;
using simd::F32;
using simd::kLanes;
using simd::load;
using simd::store;

// Accumulators of the micro-kernel: 16 of 32 registers, or 12 of 16. With AVX-512 other shapes
// (12x2, 14x2, 6x4, 4x4, 8x3) measured the same or slower.
#if defined(__AVX512F__)
inline constexpr int kPanelRows = 8;
inline constexpr int kPanelVectors = 2;
#else
inline constexpr int kPanelRows = 6;
inline constexpr int kPanelVectors = 1;
#endif
inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kLn2 = 0.693147180559945309417F;
inline constexpr Index kQueries = 64;
inline constexpr Index kKeys = 64;
inline constexpr Index kQueryVectors = kQueries / kLanes;

// Not inlined, with which the backward pass measured up to 8 % faster (g++ 12).
// c(rows R, vectors N) (+)= a b. a(r, k) is a[k * lda + r] if kUnitRows, else a[r * lda + k].
template <int R, int N, bool kUnitRows>
[[gnu::noinline]] void micro(float* c, Index ldc, const float* a, Index lda, const float* b,
                             Index ldb, Index depth, bool accumulate) {
  F32 sum[static_cast<std::size_t>(R)][static_cast<std::size_t>(N)];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n)
      sum[r][n] = accumulate ? load(c + r * ldc + n * kLanes) : simd::broadcast(0.0F);
  for (Index k = 0; k < depth; ++k) {
    F32 row[static_cast<std::size_t>(N)];
    for (int n = 0; n < N; ++n)
      row[n] = load(b + k * ldb + n * kLanes);
    for (int r = 0; r < R; ++r) {
      const F32 x = simd::broadcast(kUnitRows ? a[k * lda + r] : a[r * lda + k]);
      for (int n = 0; n < N; ++n)
        sum[r][n] = simd::fma(row[n], x, sum[r][n]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n)
      store(c + r * ldc + n * kLanes, sum[r][n]);
}

template <int R, int N, bool kUnitRows>
inline void panel(float* c, Index ldc, const float* a, Index lda, const float* b, Index ldb,
                  Index rows, Index depth, bool accumulate) {
  const Index step = kUnitRows ? 1 : lda;
  for (; rows >= R; rows -= R, c += R * ldc, a += R * step)
    micro<R, N, kUnitRows>(c, ldc, a, lda, b, ldb, depth, accumulate);
  if constexpr (R > 1)
    if (rows > 0)
      panel<(R > 4 ? 4 : R / 2), N, kUnitRows>(c, ldc, a, lda, b, ldb, rows, depth, accumulate);
}

// c(rows, vectors * kLanes) (+)= a(rows, depth) b(depth, vectors * kLanes).
template <bool kUnitRows>
inline void product(float* c, Index ldc, const float* a, Index lda, const float* b, Index ldb,
                    Index rows, Index vectors, Index depth, bool accumulate) {
  for (; vectors >= kPanelVectors; vectors -= kPanelVectors) {
    panel<kPanelRows, kPanelVectors, kUnitRows>(c, ldc, a, lda, b, ldb, rows, depth, accumulate);
    b += kPanelVectors * kLanes;
    c += kPanelVectors * kLanes;
  }
  if (vectors > 0) panel<kPanelRows, 1, kUnitRows>(c, ldc, a, lda, b, ldb, rows, depth, accumulate);
}

// Elements of a and b in turn: of their lower halves, and of their upper halves.
#if defined(__AVX512F__)
inline std::pair<F32, F32> interleave(F32 a, F32 b) {
  return {
      {__builtin_shufflevector(a.v, b.v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)},
      {__builtin_shufflevector(a.v, b.v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                               31)}};
}
#else
inline std::pair<F32, F32> interleave(F32 a, F32 b) {
  const auto zip = [](__m256 x, __m256 y) {
    const __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
    return F32{_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
  };
  return {zip(a.lo, b.lo), zip(a.hi, b.hi)};
}
#endif

// dst(kLanes, kLanes) <- factor * transpose of src, by log2(kLanes) rounds of interleaving the
// upper and the lower half of the rows.
template <class To, class From>
inline void transpose_tile(To* dst, Index dst_stride, const From* src, Index src_stride,
                           float factor) {
  F32 x[kLanes];
  F32 y[kLanes];
  for (Index i = 0; i < kLanes; ++i)
    x[i] = load(src + i * src_stride);
  for (Index round = 1; round < kLanes; round *= 4) {
    for (Index i = 0; i < kLanes / 2; ++i)
      std::tie(y[2 * i], y[2 * i + 1]) = interleave(x[i], x[i + kLanes / 2]);
    for (Index i = 0; i < kLanes / 2; ++i)
      std::tie(x[2 * i], x[2 * i + 1]) = interleave(y[i], y[i + kLanes / 2]);
  }
  for (Index i = 0; i < kLanes; ++i)
    store(dst + i * dst_stride, x[i] * simd::broadcast(factor));
}

// dst_t(d, i) <- factor * src(i, d) for i < rows, d < h; zeros elsewhere in the tiles of kLanes
// squared that are touched.
template <class T>
inline void transpose_in(float* dst_t, const T* src, Index stride, Index rows, Index h,
                         float factor) {
  for (Index i = 0; i < rows; i += kLanes)
    for (Index d = 0; d < h; d += kLanes) {
      float* to = dst_t + d * kQueries + i;
      const T* from = src + i * stride + d;
      if (i + kLanes <= rows && d + kLanes <= h) {
        transpose_tile(to, kQueries, from, stride, factor);
      } else {
        T part[kLanes * kLanes] = {};
        for (Index r = 0; r < std::min(kLanes, rows - i); ++r)
          std::copy_n(from + r * stride, std::min(kLanes, h - d), part + r * kLanes);
        transpose_tile(to, kQueries, part, kLanes, factor);
      }
    }
}

// dst(i, d) <- factor * src_t(d, i) for i < rows, d < h.
template <class T>
inline void transpose_out(T* dst, Index stride, const float* src_t, Index rows, Index h,
                          float factor) {
  for (Index i = 0; i < rows; i += kLanes)
    for (Index d = 0; d < h; d += kLanes) {
      T* to = dst + i * stride + d;
      const float* from = src_t + d * kQueries + i;
      if (i + kLanes <= rows && d + kLanes <= h) {
        transpose_tile(to, stride, from, kQueries, factor);
      } else {
        T part[kLanes * kLanes];
        transpose_tile(part, kLanes, from, kQueries, factor);
        for (Index r = 0; r < std::min(kLanes, rows - i); ++r)
          std::copy_n(part + r * kLanes, std::min(kLanes, h - d), to + r * stride);
      }
    }
}

inline Index round_up(Index x, Index multiple) { return (x + multiple - 1) / multiple * multiple; }

// dst(padded_rows, width) <- src(rows, h), its rows `stride` apart; zeros elsewhere.
template <class T>
inline void pack(float* dst, Index width, Index padded_rows, const T* src, Index stride, Index rows,
                 Index h) {
  for (Index i = 0; i < padded_rows; ++i, dst += width) {
    const Index filled = i < rows ? h : 0;
    simd::for_lanes(filled, [&](Index d, auto lanes) {
      store(dst + d, load(src + i * stride + d, lanes), lanes);
    });
    std::fill(dst + filled, dst + width, 0.0F);
  }
}

// P or dS as an operand, for tensors of T.
template <class T>
inline F32 operand(F32 x) {
  if constexpr (std::is_same_v<T, BF16>)
    return simd::round_to_bf16(x);
  else
    return x;
}

inline F32 lane_numbers() {
  alignas(64) static constexpr float kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

// Hands out scratch from a cache line on. Every piece is a multiple of kLanes elements.
class Workspace {
 public:
  static constexpr Index kSlack = 64 / sizeof(float);
  explicit Workspace(float* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    next_ = p + (64 - address % 64) % 64 / sizeof(float);
  }
  float* take(Index count) { return std::exchange(next_, next_ + count); }

 private:
  float* next_;
};

// The queries [first, first + count) of one block and the keys that each sees.
struct QueryBlock {
  Index first = 0;
  Index count = 0;
  Index window = 0;

  [[nodiscard]] Index vectors() const { return (count + kLanes - 1) / kLanes; }
  [[nodiscard]] Index keys_begin() const { return std::max<Index>(0, first - window); }
  [[nodiscard]] Index keys_end() const { return first + count; }

  // Of the keys [begin, end), calls body(from, to, vector_begin, vector_end) for each run of keys
  // that the same vectors of queries see (in part at least).
  template <class Body>
  void for_runs(Index begin, Index end, const Body& body) const {
    for (Index from = begin; from < end;) {
      const Index low = std::max<Index>(0, from - first) / kLanes;
      const Index high = std::min(count - 1, from + window - first) / kLanes + 1;
      Index to = std::min(end, first + (low + 1) * kLanes);
      if (high < vectors()) to = std::min(to, first - window + high * kLanes);
      body(from, to, low, high);
      from = to;
    }
  }

  // The keys of [begin, end) that a query of vector `v` may see.
  [[nodiscard]] std::pair<Index, Index> keys_of(Index v, Index begin, Index end) const {
    return {std::max(begin, first + v * kLanes - window), std::min(end, first + (v + 1) * kLanes)};
  }

  // Writes -infinity over the scores of pairs that are not visible, for vector `v` and the keys
  // [begin, end); row 0 of `scores` is key `origin`.
  void mask(float* scores, Index origin, Index v, Index begin, Index end) const {
    const Index lane0 = first + v * kLanes;
    const F32 hidden = simd::broadcast(-std::numeric_limits<float>::infinity());
    for (Index j = begin; j < end; ++j) {
      if (lane0 + kLanes - 1 - window <= j && j <= lane0) {  // every lane sees these
        j = lane0;
        continue;
      }
      float* p = scores + (j - origin) * kQueries + v * kLanes;
      const F32 s = load(p);
      const F32 distance = lane_numbers() + simd::broadcast(static_cast<float>(lane0 - j));
      const F32 causal = simd::select_less(distance, simd::broadcast(0.0F), hidden, s);
      store(p, simd::select_less(simd::broadcast(static_cast<float>(window)), distance, hidden,
                                 causal));
    }
  }
};

}  // namespace muo::host
