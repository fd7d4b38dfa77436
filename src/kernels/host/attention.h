#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace muo::host {

// What the front (kernels/attention.cpp) asks of the host's kernels.

// Whether this CPU multiplies bf16 in attention; else bf16 is widened to fp32 first.
bool attention_multiplies_bf16();
// fp32 elements of scratch for one (batch row, key-value head) of t positions and heads of h.
std::int64_t attention_workspace(std::int64_t t, std::int64_t h, DType dtype);

}  // namespace muo::host
