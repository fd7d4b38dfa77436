#pragma once

#include "kernels/gemm.h"

namespace muo::host {

// Products whose a has few rows, as GemmArgs::few_rows says: bound by the memory that b comes from.
void few_rows(const GemmArgs& args);

}  // namespace muo::host
