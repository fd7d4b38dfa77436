#pragma once

#include "kernels/gemm.h"
#include "kernels/symmetric_product.h"

namespace muo::host {

// Arguments as checked by the front (kernels/gemm.cpp).
void gemm(const GemmArgs& args);

// What computes products on streams of the host, and those of the SIMT tier: gemm(), unless a test
// has put another function there, while no rank was running.
using Gemm = void (*)(const GemmArgs&);
Gemm& gemm_in_use();

// What the kernel of symmetric_product computes: of each block of rows all up to its last diagonal
// element.
double symmetric_product_flops(const SymmetricProductArgs& args);

}  // namespace muo::host
