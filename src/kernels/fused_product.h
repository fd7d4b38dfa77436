#pragma once

#include <string>

#include "runtime/stream.h"
#include "runtime/tensor.h"

// Products fused with ReLU^2, so that their results cross memory once. They round where the two
// separate operations do (kernels/gemm.h, then kernels/activation.h), and differ from them only in
// the order of summation in the product. If there is no fused kernel, the two operations run
// instead. All tensors have one dtype, fp32 or bf16.
namespace muo {

// y = max(x w^T, 0)^2
struct GemmReluSquaredArgs {
  Tensor y;  // (m, n) out
  Tensor x;  // (m, k)
  Tensor w;  // (n, k)
};
void gemm_relu_squared(Stream& stream, const GemmReluSquaredArgs& args);

// dx = 2 sqrt(y) (dy w): the gradient with respect to the input of a ReLU^2 that returned y.
struct GemmReluSquaredBackwardArgs {
  Tensor dx;  // (m, n) out
  Tensor dy;  // (m, k)
  Tensor w;   // (k, n)
  Tensor y;   // (m, n)
};
void gemm_relu_squared_backward(Stream& stream, const GemmReluSquaredBackwardArgs& args);

// Empty if GPU `device` has fused kernels, which are bf16; else one line with the reason. A
// backend's library registers the function that answers this when it is loaded.
std::string fused_products_missing(int device);
void register_fused_products(std::string (*missing)(int device));

}  // namespace muo
