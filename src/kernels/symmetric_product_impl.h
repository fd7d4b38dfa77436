#pragma once

#include "kernels/symmetric_product.h"

namespace muo::host {
void symmetric_product(const SymmetricProductArgs& args);
// That it computes: what lies on and below the diagonal, and of a b whole blocks of rows.
double symmetric_product_flops(const SymmetricProductArgs& args);
}  // namespace muo::host
