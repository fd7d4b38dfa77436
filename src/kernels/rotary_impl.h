#pragma once

#include "kernels/rotary.h"

namespace muo::host {
void rotary_table(const RotaryTableArgs& args);
void rotary_norm(const RotaryNormArgs& args);
void rotary_norm_backward(const RotaryNormBackwardArgs& args);
}  // namespace muo::host
