#pragma once

#include "kernels/symmetric_product.h"

namespace muo::host {

// What the kernel computes: of each block of rows all up to its last diagonal element.
double symmetric_product_flops(const SymmetricProductArgs& args);

}  // namespace muo::host
