#pragma once

#include "kernels/gemm.h"

namespace muo::host {
void gemm(const GemmArgs& args);
void gemm_bf16(const GemmArgs& args);  // a and b are bf16
}  // namespace muo::host
