#pragma once

#include <optional>

#include <cuda_runtime_api.h>

#include "runtime/stream.h"

namespace muo::cuda {

// The ends of a loop (Stream::loop). `captured`: the condition of its WHILE node, which they set;
// empty outside of a capture.
void begin_loop(NativeStream stream, const LoopCounter& counter,
                std::optional<cudaGraphConditionalHandle> captured);
void end_pass(NativeStream stream, const LoopCounter& counter,
              std::optional<cudaGraphConditionalHandle> captured);

}  // namespace muo::cuda
