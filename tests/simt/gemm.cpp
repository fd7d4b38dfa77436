// In the place of cuBLASLt, so that what consists of products and own kernels can run as a whole.

#include "kernels/cuda/registration.h"
#include "kernels/gemm_impl.h"
#include "simt/emulator/launch.h"

namespace muo::simt {
namespace {

void gemm(NativeStream stream, const GemmArgs& args) {
  stream->host.enqueue_host("gemm", {}, [args] { host::gemm(args); });
}

const cuda::KernelRegistration<GemmArgs> registration(&gemm);

}  // namespace
}  // namespace muo::simt
