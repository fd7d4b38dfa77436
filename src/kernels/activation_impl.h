#pragma once

#include "kernels/activation.h"

namespace muo::host {
void relu_squared(const ReluSquaredArgs& args);
void relu_squared_backward(const ReluSquaredBackwardArgs& args);
}  // namespace muo::host
