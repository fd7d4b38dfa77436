#pragma once

#include <cstdint>
#include <utility>

#include "kernels/host/onednn.h"
#include "kernels/host/simd_bf16.h"

// Blocks of bf16 products, for CPUs that can multiply only fp32.
namespace muo::host {

// Widens `rows` x `columns` of op(x) from (row, column) on into `scratch`, in x's memory layout.
inline MatrixBlock<const float> widened(float* scratch, MatrixBlock<const BF16> x, bool transposed,
                                        std::int64_t row, std::int64_t column, std::int64_t rows,
                                        std::int64_t columns) {
  if (transposed) {
    std::swap(row, column);
    std::swap(rows, columns);
  }
  for (std::int64_t i = 0; i < rows; ++i)
    simd::copy(scratch + i * columns, x.data + (row + i) * x.stride + column, columns);
  return {scratch, columns};
}

// d <- bf16(product + beta c), with a single rounding. c is null if it is ignored.
inline void round_block(MatrixBlock<BF16> d, MatrixBlock<const BF16> c, float beta,
                        MatrixBlock<const float> product, std::int64_t rows, std::int64_t columns) {
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
