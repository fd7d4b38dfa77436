#pragma once

#include "kernels/gemm.h"

namespace muo::host {

// Products with GemmArgs::few_rows, whose speed is bound by reading b from memory.
void few_rows(const GemmArgs& args);

}  // namespace muo::host
