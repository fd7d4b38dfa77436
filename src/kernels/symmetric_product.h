#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha a b + beta c + diagonal I, as gemm computes it, for results that the caller knows to
// be symmetric: only blocks on and below the diagonal are computed, about half the work of gemm,
// and mirrored bit by bit. All tensors are batches of one dtype, fp32 or bf16. a and b are
// symmetric matrices that commute, (batch, n, n); or b is absent, and the product is a a^T with a
// (batch, n, k), or, with transpose_a, a^T a with a (batch, k, n). c is symmetric and may be absent
// or be d, as in gemm; d must overlap neither a nor b. `diagonal` is added to gemm's rounded
// result, and the sum is rounded again.
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
