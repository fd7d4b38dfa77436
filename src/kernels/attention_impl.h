#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace muo::host {

// On the calling thread; arguments as checked by the front (kernels/attention.cpp).
void attention(const AttentionArgs& args);
void attention_backward(const AttentionBackwardArgs& args);
bool attention_multiplies_bf16();
std::int64_t attention_workspace(std::int64_t t, std::int64_t h, DType dtype);

}  // namespace muo::host
