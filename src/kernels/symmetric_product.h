#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha a b + beta c + diagonal I, as gemm computes it, for results that the caller knows to
// be symmetric. Only blocks on and below the diagonal are computed, about half the work of gemm;
// the others are bit-exact mirror images. All tensors are batches of one dtype, fp32 or bf16. a and
// b are symmetric matrices that commute, (batch, n, n). If b is absent, the product is a a^T with a
// (batch, n, k), or, with transpose_a, a^T a with a (batch, k, n). c is symmetric and may be absent
// or be d, as in gemm; d must not overlap a or b. `diagonal` is added to gemm's rounded result, and
// the sum is rounded again.
struct SymmetricProductArgs {
  Tensor d;    // (batch, n, n) out
  Tensor c{};  // optional
  Tensor a;
  Tensor b{};  // optional
  float alpha = 1.0F;
  float beta = 0.0F;
  float diagonal = 0.0F;
  bool transpose_a = false;
};
void symmetric_product(Stream& stream, const SymmetricProductArgs& args);

}  // namespace muo
