#pragma once

#include "kernels/residual.h"

namespace muo::host {
void mix_norm(const MixNormArgs& args);
void mix_backward(const MixBackwardArgs& args);
void add(const AddArgs& args);
}  // namespace muo::host
