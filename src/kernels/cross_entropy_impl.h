#pragma once

#include "kernels/cross_entropy.h"

namespace muo::host {
void cross_entropy(const CrossEntropyArgs& args);
void soft_cap(const SoftCapArgs& args);
}  // namespace muo::host
