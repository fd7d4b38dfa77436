#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// d <- alpha a b + beta c + diagonal I, as gemm computes it, where the caller knows that this is
// symmetric: of the product blocks on and below the diagonal are computed, about half the work of
// gemm, and what lies above is their mirror image, the same bits. All are batches of one dtype,
// fp32 or bf16; a and b are symmetric matrices that commute, (batch, n, n), or b is absent:
// then it is a a^T, a (batch, n, k), or with transpose_a it is a^T a, a (batch, k, n). c, which is
// symmetric, may be absent or be d, as in gemm; d overlaps neither a nor b. `diagonal` is added to
// what gemm rounds, and the sum is rounded again.
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
