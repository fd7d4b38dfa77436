// In builds without CUTLASS's headers, or for other GPUs than those of compute capability 9.0.
#ifndef MUO_CUTLASS

#  include "base/check.h"
#  include "kernels/cuda/fused_kernels.h"

namespace muo::cuda {

std::string fused_kernels_missing(int /*device*/) {
  return "this build has none (scripts/setup.sh fetches what it needs where there is a CUDA "
         "toolkit; then build again)";
}
void run_fused(NativeStream /*stream*/, const FusedProblem& /*problem*/,
               const FusedOperands& /*operands*/, int device, int /*multiprocessors*/) {
  throw Error(fused_kernels_missing(device));
}

}  // namespace muo::cuda

#endif
