#pragma once

#include <string>

#include "kernels/attention_choice.h"

namespace muo::cuda {

// Compares cuDNN's attention of this size, for which cuDNN must have a kernel, with the portable
// kernels. Returns an empty string if they agree, else one line. If there is not enough GPU memory
// for the comparison, returns an empty string after printing a line to stderr. The result is
// computed once per process, in temporary memory, for all GPUs; concurrent callers wait for it. Any
// thread may call this; as with plans (kernels/cuda/cudnn_attention.h), make the first call for a
// size at a point where no rank waits for another.
std::string cudnn_attention_is_wrong(const AttentionSize& size, AttentionDirection direction);

}  // namespace muo::cuda
