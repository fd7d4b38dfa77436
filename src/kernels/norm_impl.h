#pragma once

#include "kernels/norm.h"

namespace muo::host {
void rms_norm(const RmsNormArgs& args);
void rms_norm_backward(const RmsNormBackwardArgs& args);
}  // namespace muo::host
