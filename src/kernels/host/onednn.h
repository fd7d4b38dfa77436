#pragma once

#include <cstdint>

#include "base/dtype.h"

// Products of matrices by oneDNN, each in its caller's thread alone: a device is a thread. The same
// call gives the same bits.
namespace muo::host {

// One matrix of a batch; beta is 0 if d does not count.
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

// d (m, n) <- alpha op(a) op(b) + beta d, with sums in fp32 and one rounding. k is positive, and
// d overlaps neither a nor b. Throws Error. Those of bf16 need multiplies_bf16().
void product(const Product& p, MatrixBlock<const float> a, MatrixBlock<const float> b,
             MatrixBlock<float> d);
void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<float> d);
void product(const Product& p, MatrixBlock<const BF16> a, MatrixBlock<const BF16> b,
             MatrixBlock<BF16> d);

// Whether this CPU multiplies bf16 faster than fp32.
bool multiplies_bf16();

// Whether it has AVX-512 BF16. Both answers heed DNNL_MAX_CPU_ISA.
bool has_avx512_bf16();

}  // namespace muo::host
