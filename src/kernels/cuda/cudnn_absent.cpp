// For builds without cuDNN, i.e. if its headers or those of its frontend were not found.
#ifndef MUO_CUDNN

#  include "base/check.h"
#  include "kernels/cuda/cudnn_attention.h"

namespace muo::cuda {

const std::string& cudnn_missing() {
  static const std::string missing =
      "this build has no cuDNN attention (scripts/setup.sh fetches what it needs where there is a "
      "CUDA toolkit; then build again)";
  return missing;
}
LibraryAttention cudnn_attention_support(const AttentionProblem& /*problem*/,
                                         AttentionDirection /*direction*/, bool /*deterministic*/) {
  return {.why_not = cudnn_missing()};
}
void cudnn_attention(NativeStream /*stream*/, const AttentionArgs& /*args*/) {
  throw Error(cudnn_missing());
}
void cudnn_attention_backward(NativeStream /*stream*/, const AttentionBackwardArgs& /*args*/) {
  throw Error(cudnn_missing());
}
LibraryAttention cudnn_attention_support_on(const AttentionProblem& /*problem*/,
                                            AttentionDirection /*direction*/,
                                            bool /*deterministic*/, const DescribedGpu& /*gpu*/) {
  return {.why_not = cudnn_missing()};
}

}  // namespace muo::cuda

#endif
