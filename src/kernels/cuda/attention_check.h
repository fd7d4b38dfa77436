#pragma once

#include <string>

#include "kernels/attention_choice.h"

namespace muo::cuda {

// Compares cuDNN's attention of this size, for which cuDNN must have a kernel, with the portable
// kernels'. Empty if they agree, or if there is not enough GPU memory to compare them, which prints
// a line to stderr; else one line. Computed once per process, in temporary memory, for all GPUs;
// other callers wait meanwhile. Any thread may call it; make the first call for a size where no
// rank waits for another, as with plans (kernels/cuda/cudnn_attention.h).
std::string cudnn_attention_is_wrong(const AttentionSize& size, AttentionDirection direction);

}  // namespace muo::cuda
