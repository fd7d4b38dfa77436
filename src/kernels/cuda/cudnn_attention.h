#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "kernels/attention_choice.h"
#include "runtime/stream.h"

// Attention through cuDNN, in bf16, for the sizes that it has kernels for. All functions say or
// throw what is missing where the build or the machine has no cuDNN.
namespace muo::cuda {

// What a library's plans of attention are kept by.
struct AttentionProblem {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;  // at most t: a wider one hides nothing more
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

// Empty if this build has cuDNN and it loads (it then stays loaded); else one line.
const std::string& cudnn_missing();

// What cuDNN says to one direction on the current device, in bf16. The first call for a direction
// of a problem makes its plan (about a second, on the CPU) and keeps it, so it belongs before a
// capture. Any thread may call it. Of the backward direction, deterministic gradients take about
// 2 b heads t^2 bytes of scratch, because the gradients of the scores are stored instead of being
// added up in whatever order blocks finish; without, it is about 4 b heads t h. The forward
// direction is always deterministic, and takes next to nothing.
LibraryAttention cudnn_attention_here(const AttentionProblem& problem, AttentionDirection direction,
                                      bool deterministic);

// args.workspace has at least that many bytes. Every address is a multiple of 16.
void cudnn_attention(NativeStream stream, const AttentionArgs& args);
void cudnn_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// The same on a GPU that need not be here: `properties` is the JSON of its device properties,
// `capability` is 90 for 9.0. The driver must be able to load kernels. Keeps nothing.
struct DescribedGpu {
  int capability = 0;
  std::string properties;
};
LibraryAttention cudnn_attention_elsewhere(const AttentionProblem& problem,
                                           AttentionDirection direction, bool deterministic,
                                           const DescribedGpu& gpu);

}  // namespace muo::cuda
