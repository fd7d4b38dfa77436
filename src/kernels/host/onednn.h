#pragma once

#include <cstdint>

#include "base/dtype.h"

// Matrix products by oneDNN, each only on the thread of its caller, because a device is one thread.
// Equal calls give equal bits.
namespace muo::host {

// A product of one matrix of a batch; beta is 0 if old contents of d are ignored.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
};

// A block of a row-major matrix.
template <class T>
struct MatrixBlock {
  T* data;
  std::int64_t stride;
};

// d (m, n) <- alpha op(a) op(b) + beta d, with sums in fp32 and one rounding. k must be positive,
// and d must not overlap a or b. bf16 products need multiplies_bf16(). Throws Error.
void product(const Product& p, MatrixBlock<const float> a, MatrixBlock<const float> b,
             MatrixBlock<float> d);
void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<float> d);
void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<BF16> d);

// Whether this CPU multiplies bf16 faster than fp32. Respects DNNL_MAX_CPU_ISA.
bool multiplies_bf16();

// Whether this CPU has AVX-512 BF16. Respects DNNL_MAX_CPU_ISA.
bool has_avx512_bf16();

}  // namespace muo::host
