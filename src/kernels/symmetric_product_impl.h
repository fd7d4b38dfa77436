#pragma once

#include "kernels/symmetric_product.h"

namespace muo::host {
void symmetric_product(const SymmetricProductArgs& args);
}
