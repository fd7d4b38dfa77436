#pragma once

#include "kernels/gemm.h"
#include "kernels/symmetric_product.h"

namespace muo::host {

// `args` must have been checked (kernels/gemm.cpp).
void gemm(const GemmArgs& args);

// The function that computes products on the host's streams and in the SIMT tier. It is gemm(),
// unless a test replaces it, which is allowed only while no rank is running.
using Gemm = void (*)(const GemmArgs&);
Gemm& active_gemm();

// FLOPs of symmetric_product's kernel, which computes each block of rows up to the block's last
// diagonal element.
double symmetric_product_flops(const SymmetricProductArgs& args);

}  // namespace muo::host
