#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "kernels/attention_choice.h"
#include "runtime/stream.h"

// Attention by cuDNN, in bf16, for the sizes for which it has kernels. If the build or the machine
// has no cuDNN, all functions return or throw a message that names the missing part.
namespace muo::cuda {

// The key of a library's attention plans.
struct AttentionProblem {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;  // at most t, because wider windows are equivalent
  float scale = 1.0F;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
  friend auto operator<=>(const AttentionProblem&, const AttentionProblem&) = default;
};

inline AttentionProblem problem_of(const AttentionSize& size) {
  return {.b = size.b,
          .t = size.t,
          .heads = size.heads,
          .kv_heads = size.kv_heads,
          .h = size.h,
          .window = std::min(size.window, size.t),
          .scale = size.scale};
}

// Empty if this build supports cuDNN and cuDNN loads (it then stays loaded); else one line.
const std::string& cudnn_missing();

// cuDNN's support for one direction on the current device, in bf16. The first call for a direction
// of a problem makes its plan (which takes about a second on the CPU) and keeps it, so this call
// must precede the capture. Any thread may call it. Deterministic gradients need about 2 b heads
// t^2 bytes of scratch, because the gradients of the scores are stored instead of being summed in
// the order in which blocks finish; otherwise, gradients need about 4 b heads t h bytes. The
// forward direction is always deterministic and needs almost no scratch.
LibraryAttention cudnn_attention_support(const AttentionProblem& problem,
                                         AttentionDirection direction, bool deterministic);

// args.workspace must have at least LibraryAttention::workspace bytes, and every address must be a
// multiple of 16.
void cudnn_attention(NativeStream stream, const AttentionArgs& args);
void cudnn_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// The same for a GPU that need not be present: `properties` is the JSON of its device
// properties, `capability` is its compute capability (90 for 9.0). The driver must be able to
// load kernels. Keeps no plan.
struct DescribedGpu {
  int capability = 0;
  std::string properties;
};
LibraryAttention cudnn_attention_support_on(const AttentionProblem& problem,
                                            AttentionDirection direction, bool deterministic,
                                            const DescribedGpu& gpu);

}  // namespace muo::cuda
