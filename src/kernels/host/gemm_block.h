#pragma once

#include <cblas.h>

#include <cstdint>
#include <utility>

#include "kernels/host/simd_bf16.h"

// What products of whole matrices are made of.
namespace muo::host {

// One matrix of a batch; `c` is null if it does not count.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
};

// A block of a row-major matrix.
template <class T>
struct Block {
  T* data;
  std::int64_t stride;
};

// d(m, n) <- alpha op(a) op(b) + beta d.
inline void sgemm(const Product& p, Block<const float> a, Block<const float> b, Block<float> d) {
  const auto extent = [](std::int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
              p.transpose_b ? CblasTrans : CblasNoTrans, extent(p.m), extent(p.n), extent(p.k),
              p.alpha, a.data, extent(a.stride), b.data, extent(b.stride), p.beta, d.data,
              extent(d.stride));
}

// Rows and columns of op(x) from (row, column) on, widened into `scratch` as they lie in memory.
inline Block<const float> widened(float* scratch, Block<const BF16> x, bool transposed,
                                  std::int64_t row, std::int64_t column, std::int64_t rows,
                                  std::int64_t columns) {
  if (transposed) {
    std::swap(row, column);
    std::swap(rows, columns);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const BF16* from = x.data + (row + i) * x.stride + column;
    float* to = scratch + i * columns;
    simd::for_lanes(columns, [&](std::int64_t j, auto lanes) {
      simd::store(to + j, simd::load(from + j, lanes), lanes);
    });
  }
  return {scratch, columns};
}

// d <- bf16(product + beta c): the one rounding. c is null if it does not count.
inline void round_block(Block<BF16> d, Block<const BF16> c, float beta, Block<const float> product,
                        std::int64_t rows, std::int64_t columns) {
  const simd::F32 factor = simd::broadcast(beta);
  for (std::int64_t i = 0; i < rows; ++i)
    simd::for_lanes(columns, [&](std::int64_t j, auto lanes) {
      simd::F32 value = simd::load(product.data + i * product.stride + j, lanes);
      if (c.data != nullptr)
        value = simd::fma(factor, simd::load(c.data + i * c.stride + j, lanes), value);
      simd::store(d.data + i * d.stride + j, value, lanes);
    });
}

}  // namespace muo::host
