// For builds without the headers of CUTLASS, or for GPUs whose compute capability is not 9.0.
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
