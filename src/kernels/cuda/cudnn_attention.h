#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/attention_problem.h"
#include "runtime/stream.h"

// Attention through cuDNN, in bf16, for the sizes that it has kernels for. All functions say or
// throw what is missing where the build or the machine has no cuDNN.
namespace muo::cuda {

// Empty if this build has cuDNN and it loads (it then stays loaded); else one line.
const std::string& cudnn_missing();

// Whether both directions can be computed here, on the current device; if not, *why_not is one
// line. The first call for a problem makes its plans (about a second each, on the CPU) and keeps
// them, so it belongs before a capture. Any thread may call it.
bool cudnn_attention_usable(const AttentionProblem& problem, DType dtype, std::string* why_not);

// Bytes of scratch that both directions need. Deterministic gradients cost about
// 2 b heads t^2 bytes, because the gradients of the scores are stored instead of being added up in
// whatever order blocks finish; without, it is about 4 b heads t h.
std::int64_t cudnn_attention_workspace(const AttentionProblem& problem, bool deterministic);

// args.workspace has at least that many bytes. Every address is a multiple of 16.
void cudnn_attention(NativeStream stream, const AttentionArgs& args);
void cudnn_attention_backward(NativeStream stream, const AttentionBackwardArgs& args,
                              bool deterministic = true);

// What cuDNN says to one direction on a GPU that need not be here: `properties` is the JSON of its
// device properties, `capability` is 90 for 9.0. The driver must be able to load kernels.
enum class AttentionDirection : std::uint8_t { kForward, kBackward };
struct DescribedGpu {
  int capability = 0;
  std::string properties;
};
struct CudnnVerdict {
  std::string why_not;  // empty if there is a plan
  std::int64_t workspace = 0;
};
CudnnVerdict cudnn_attention_elsewhere(const AttentionProblem& problem,
                                       AttentionDirection direction, bool deterministic,
                                       const DescribedGpu& gpu);

}  // namespace muo::cuda
