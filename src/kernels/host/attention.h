#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace muo::host {

// Properties of the host's kernels that kernels/attention.cpp needs.

// True if this CPU's attention multiplies bf16; false if it widens bf16 to fp32 first.
bool attention_multiplies_bf16();
// fp32 elements of scratch for one (batch row, key-value head) of t positions and heads of h.
std::int64_t attention_workspace(std::int64_t t, std::int64_t h, DType dtype);

}  // namespace muo::host
