#include <cstdint>

#include "runtime/cuda/launch.h"
#include "runtime/cuda/loop_kernels.h"

namespace muo::cuda {
namespace {

// One thread. `first`: begins the loop, else ends a pass.
__global__ void count_pass_kernel(std::int64_t* passes, const std::int64_t* count, bool first,
                                  bool captured, cudaGraphConditionalHandle condition) {
  const std::int64_t next = first ? 0 : *passes + 1;
  *passes = next;
  if (captured) cudaGraphSetConditional(condition, next < *count ? 1U : 0U);
}

void count_pass(NativeStream stream, const LoopCounter& counter, bool first,
                std::optional<cudaGraphConditionalHandle> captured) {
  launch(count_pass_kernel, 1, 1, 0, stream, counter.passes.as<std::int64_t>(),
         counter.count.as<std::int64_t>(), first, captured.has_value(), captured.value_or(0));
}

}  // namespace

void begin_loop(NativeStream stream, const LoopCounter& counter,
                std::optional<cudaGraphConditionalHandle> captured) {
  count_pass(stream, counter, true, captured);
}

void end_pass(NativeStream stream, const LoopCounter& counter,
              std::optional<cudaGraphConditionalHandle> captured) {
  count_pass(stream, counter, false, captured);
}

}  // namespace muo::cuda
