// In the place of cuBLASLt, so that what consists of products and own kernels can run as a whole.
// What the backend computes by a kernel of its own, it computes by that.

#include "kernels/cuda/gemm_scale.h"
#include "kernels/cuda/registration.h"
#include "kernels/gemm_impl.h"
#include "simt/emulator/launch.h"

namespace muo::simt {
namespace {

void gemm(NativeStream stream, const GemmArgs& args) {
  const std::size_t last = args.a.shape.rank() - 1;
  if (args.a.shape[args.transpose_a ? last - 1 : last] == 0)
    return cuda::scale_into(stream, args.d, args.beta == 0.0F ? Tensor{} : args.c, args.beta);
  stream->host.enqueue_host("gemm", {}, [args] { host::gemm(args); });
}

const cuda::KernelRegistration<GemmArgs> registration(&gemm);

}  // namespace
}  // namespace muo::simt
