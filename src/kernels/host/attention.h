#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace muo::host {

// Properties of the host's kernels that kernels/attention.cpp needs.

// Whether attention multiplies bf16 on this CPU; if not, it widens bf16 to fp32 first.
bool attention_multiplies_bf16();
// Scratch in fp32 elements for one (batch row, key-value head) of t positions and heads of size h.
std::int64_t attention_workspace(std::int64_t t, std::int64_t h, DType dtype);

}  // namespace muo::host
