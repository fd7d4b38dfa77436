#pragma once

#include <string>

#include "kernels/attention_choice.h"

namespace muo::cuda {

// Compares cuDNN's attention of this size, for which it has a kernel, with the portable kernels',
// once in a process: the first caller computes, with memory of its own, while others wait, and the
// answer holds for all GPUs. Empty if they agree, or if there is not enough memory to compare them,
// which a line on stderr says; else one line. Any thread may call it; the first call for a size
// belongs where no rank waits for another, as with plans (kernels/cuda/cudnn_attention.h).
std::string cudnn_attention_is_wrong(const AttentionSize& size, AttentionDirection direction);

}  // namespace muo::cuda
