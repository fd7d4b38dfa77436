#pragma once

#include "kernels/gemm.h"

namespace muo::host {
void gemm(const GemmArgs& args);
}
