#pragma once

#include <string>

#include "runtime/stream.h"
#include "runtime/tensor.h"

// Products with ReLU^2 in the kernel that makes them, so that what they make crosses memory once.
// They round where the pair of operations does (kernels/gemm.h, then kernels/activation.h), and
// differ from it by the order of a product's sum alone; where no such kernel can be had, they are
// that pair. fp32 or bf16, all the same.
namespace muo {

// y = max(x w^T, 0)^2
struct GemmReluSquaredArgs {
  Tensor y;  // (m, n) out
  Tensor x;  // (m, k)
  Tensor w;  // (n, k)
};
void gemm_relu_squared(Stream& stream, const GemmReluSquaredArgs& args);

// dx = 2 sqrt(y) (dy w), the gradient before an activation that returned y.
struct GemmReluSquaredBackwardArgs {
  Tensor dx;  // (m, n) out
  Tensor dy;  // (m, k)
  Tensor w;   // (k, n)
  Tensor y;   // (m, n)
};
void gemm_relu_squared_backward(Stream& stream, const GemmReluSquaredBackwardArgs& args);

// Empty if GPU `device` has such kernels, in bf16; else one line. A backend's library registers who
// answers when it is loaded; without, there is no GPU.
std::string fused_products_missing(int device);
void register_fused_products(std::string (*missing)(int device));

}  // namespace muo
