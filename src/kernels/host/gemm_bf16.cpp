#include <cblas.h>

#include <algorithm>
#include <memory>

#include "kernels/blas.h"
#include "kernels/gemm_impl.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/simd_bf16.h"

// bf16 operands are widened block by block, in the cache, and multiplied by sgemm: exact products,
// fp32 sums, one rounding at the store. On a CPU with AVX-512 BF16 but without AMX this is faster
// than the bf16 instructions themselves (docs/performance.md).
namespace muo::host {
namespace {

using Index = std::int64_t;

constexpr Index kRows = 512;     // of a block of d
constexpr Index kColumns = 512;  // of a block of d
constexpr Index kDepth = 1024;   // summed over at once

// Of one calling thread, made at its first product.
struct Scratch {
  alignas(64) float a[kRows * kDepth];
  alignas(64) float b[kDepth * kColumns];
  alignas(64) float d[kRows * kColumns];
};
Scratch& scratch() {
  thread_local const auto memory = std::make_unique_for_overwrite<Scratch>();
  return *memory;
}

// One matrix of a batch: `rows` by `columns` as stored.
template <class T>
struct Matrix {
  T* data;
  Index columns;
  [[nodiscard]] T* at(Index row, Index column) const { return data + row * columns + column; }
};

void widen(float* to, const Matrix<const BF16>& from, Index row, Index column, Index rows,
           Index columns) {
  for (Index r = 0; r < rows; ++r) {
    const BF16* x = from.at(row + r, column);
    simd::for_lanes(columns, [&](Index i, auto lanes) {
      simd::store(to + r * columns + i, simd::load(x + i, lanes), lanes);
    });
  }
}

// d = sum + beta c, rounded once.
template <class D>
void finish(const Matrix<D>& d, const Matrix<const D>& c, const float* sum, float beta, Index row,
            Index column, Index rows, Index columns) {
  const simd::F32 factor = simd::broadcast(beta);
  for (Index r = 0; r < rows; ++r)
    simd::for_lanes(columns, [&](Index i, auto lanes) {
      simd::F32 value = simd::load(sum + r * columns + i, lanes);
      if (c.data != nullptr)
        value = simd::fma(factor, simd::load(c.at(row + r, column) + i, lanes), value);
      simd::store(d.at(row + r, column) + i, value, lanes);
    });
}

template <class D>
void gemm_of(const GemmArgs& args) {
  const bool batched = args.d.shape.rank() == 3;
  const std::size_t axis = batched ? 1 : 0;
  const Index batch = batched ? args.d.shape[0] : 1;
  const Index m = args.d.shape[axis];
  const Index n = args.d.shape[axis + 1];
  const Index k = args.a.shape[args.transpose_a ? axis : axis + 1];
  const bool adds = args.c && args.beta != 0.0F;
  Scratch& s = scratch();
  const auto extent = [](Index x) { return static_cast<blasint>(x); };
  for (Index i = 0; i < batch; ++i) {
    const Matrix<const BF16> a{args.a.as<BF16>() + i * m * k, args.transpose_a ? m : k};
    const Matrix<const BF16> b{args.b.as<BF16>() + i * k * n, args.transpose_b ? k : n};
    const Matrix<D> d{args.d.as<D>() + i * m * n, n};
    const Matrix<const D> c{adds ? args.c.as<D>() + i * m * n : nullptr, n};
    for (Index row = 0; row < m; row += kRows)
      for (Index column = 0; column < n; column += kColumns) {
        const Index rows = std::min(kRows, m - row);
        const Index columns = std::min(kColumns, n - column);
        if (k == 0) std::fill_n(s.d, rows * columns, 0.0F);
        for (Index from = 0; from < k; from += kDepth) {
          const Index depth = std::min(kDepth, k - from);
          if (args.transpose_a)
            widen(s.a, a, from, row, depth, rows);
          else
            widen(s.a, a, row, from, rows, depth);
          if (args.transpose_b)
            widen(s.b, b, column, from, columns, depth);
          else
            widen(s.b, b, from, column, depth, columns);
          cblas_sgemm(CblasRowMajor, args.transpose_a ? CblasTrans : CblasNoTrans,
                      args.transpose_b ? CblasTrans : CblasNoTrans, extent(rows), extent(columns),
                      extent(depth), args.alpha, s.a, extent(args.transpose_a ? rows : depth), s.b,
                      extent(args.transpose_b ? depth : columns), from == 0 ? 0.0F : 1.0F, s.d,
                      extent(columns));
        }
        finish(d, c, s.d, args.beta, row, column, rows, columns);
      }
  }
}

}  // namespace

void gemm_bf16(const GemmArgs& args) {
  require_safe_blas();
  dispatch(args.d.dtype, [&]<class D>() { gemm_of<D>(args); });
}

}  // namespace muo::host
