#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "kernels/host/attention_product.h"

// Conversions between operands of attention_product.h and tensors, which are given as (rows, h) of
// one head with rows `stride` elements apart.
namespace muo::host {

inline Index round_up(Index x, Index multiple) { return (x + multiple - 1) / multiple * multiple; }

// The number of words that hold n numbers along the depth.
template <class Operand>
inline Index words(Index n) {
  return round_up(n, Operand::kDepth) / Operand::kDepth;
}

// Transposes a square of kLanes x kLanes words in log2(kLanes) rounds, each of which interleaves
// the lower and the upper half of the rows.
template <class Load, class Store>
inline void transpose_tile(const Load& load_row, const Store& store_row) {
  F32 x[kLanes];
  F32 y[kLanes];
  for (Index i = 0; i < kLanes; ++i)
    x[i] = load_row(i);
  for (Index round = 1; round < kLanes; round *= 4) {
    for (Index i = 0; i < kLanes / 2; ++i)
      std::tie(y[2 * i], y[2 * i + 1]) = interleave(x[i], x[i + kLanes / 2]);
    for (Index i = 0; i < kLanes / 2; ++i)
      std::tie(x[2 * i], x[2 * i + 1]) = interleave(y[i], y[i + kLanes / 2]);
  }
  for (Index i = 0; i < kLanes; ++i)
    store_row(i, x[i]);
}

// dst_t(word d, i) <- words along the features of src(i, h), for i < rows. The other words of the
// kLanes x kLanes tiles that are written become zero.
template <class Operand>
inline void transpose_in(float* dst_t, Index dst_stride, const typename Operand::Element* src,
                         Index stride, Index rows, Index h) {
  using Element = typename Operand::Element;
  constexpr Index kNumbers = kLanes * Operand::kDepth;
  const auto tile = [&](float* to, const Element* from, Index from_stride) {
    transpose_tile([&](Index i) { return Operand::load_words(from + i * from_stride); },
                   [&](Index d, F32 x) { store(to + d * dst_stride, x); });
  };
  for (Index i = 0; i < rows; i += kLanes)
    for (Index d = 0; d < h; d += kNumbers) {
      float* to = dst_t + d / Operand::kDepth * dst_stride + i;
      const Element* from = src + i * stride + d;
      if (i + kLanes <= rows && d + kNumbers <= h) {
        tile(to, from, stride);
      } else {
        Element padded[static_cast<std::size_t>(kLanes * kNumbers)] = {};
        for (Index r = 0; r < std::min(kLanes, rows - i); ++r)
          std::copy_n(from + r * stride, std::min(kNumbers, h - d), padded + r * kNumbers);
        tile(to, padded, kNumbers);
      }
    }
}

// dst(i, d) <- factor of row i times src_t(d, i), which is fp32, for i < rows, d < h. factors(v)
// returns the factors of the kLanes rows from v * kLanes on.
template <class T, class Factors>
inline void transpose_out(T* dst, Index stride, const float* src_t, Index src_stride, Index rows,
                          Index h, const Factors& factors) {
  for (Index i = 0; i < rows; i += kLanes) {
    const F32 factor = factors(i / kLanes);
    const auto tile = [&](T* to, Index to_stride, const float* from) {
      transpose_tile([&](Index d) { return load(from + d * src_stride) * factor; },
                     [&](Index r, F32 x) { store(to + r * to_stride, x); });
    };
    for (Index d = 0; d < h; d += kLanes) {
      T* to = dst + i * stride + d;
      const float* from = src_t + d * src_stride + i;
      if (i + kLanes <= rows && d + kLanes <= h) {
        tile(to, stride, from);
      } else {
        T padded[kLanes * kLanes];
        tile(padded, kLanes, from);
        for (Index r = 0; r < std::min(kLanes, rows - i); ++r)
          std::copy_n(padded + r * kLanes, std::min(kLanes, h - d), to + r * stride);
      }
    }
  }
}

// Prefetches a row: the rows of one head are too far apart for the hardware prefetcher.
template <class T>
inline void prefetch_row(const T* row, Index h) {
  const auto* bytes = reinterpret_cast<const char*>(row);
  for (Index i = 0; i < h * static_cast<Index>(sizeof(T)); i += 64)
    __builtin_prefetch(bytes + i);
}
inline constexpr Index kRowsAhead = 16;

// dst(dst_rows, width) <- words along the features of src(rows, h). The rest becomes zero.
template <class Operand>
inline void pack_rows(float* dst, Index width, Index dst_rows, const typename Operand::Element* src,
                      Index stride, Index rows, Index h) {
  using Element = typename Operand::Element;
  constexpr Index kNumbers = kLanes * Operand::kDepth;
  std::fill_n(dst + rows * width, (dst_rows - rows) * width, 0.0F);
  for (Index i = 0; i < rows; ++i, dst += width, src += stride) {
    if (i + kRowsAhead < rows) prefetch_row(src + kRowsAhead * stride, h);
    Index d = 0;
    for (; d + kNumbers <= h; d += kNumbers)
      store(dst + d / Operand::kDepth, Operand::load_words(src + d));
    if (d == h) continue;
    std::fill(dst + d / Operand::kDepth, dst + width, 0.0F);
    Element padded[static_cast<std::size_t>(kNumbers)] = {};
    std::copy_n(src + d, h - d, padded);
    simd::for_lanes(words<Operand>(h - d), [&](Index w, auto lanes) {
      store(dst + d / Operand::kDepth + w, Operand::load_words(padded), lanes);
    });
  }
}

// dst(dst_rows, width) <- words along the rows of src(rows, h): a row of dst holds kDepth rows of
// src. The rest becomes zero.
template <class Operand>
inline void pack_columns(float* dst, Index width, Index dst_rows,
                         const typename Operand::Element* src, Index stride, Index rows, Index h) {
  constexpr Index kDepth = Operand::kDepth;
  for (Index i = 0; i < dst_rows * kDepth; i += kDepth, dst += width) {
    const Index filled = i < rows ? h : 0;
    for (Index n = i + kRowsAhead; n < std::min(i + kRowsAhead + kDepth, rows); ++n)
      prefetch_row(src + n * stride, h);
    simd::for_lanes(filled, [&](Index d, auto lanes) {
      typename Operand::Group x;
      for (Index n = 0; n < kDepth; ++n)
        x[n] = i + n < rows ? load(src + (i + n) * stride + d, lanes) : simd::broadcast(0.0F);
      store(dst + d, Operand::combine(x), lanes);
    });
    std::fill(dst + filled, dst + width, 0.0F);
  }
}

}  // namespace muo::host
