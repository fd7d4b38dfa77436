// In the place of cuBLASLt, so that what consists of products and own kernels can run as a whole.
// What the backend computes by a kernel of its own, it computes by that. There is one algorithm,
// which the table of algorithms gets as if it had been measured.

#include "kernels/cuda/gemm_algorithms.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/cuda/gemm_scale.h"
#include "kernels/cuda/registration.h"
#include "kernels/gemm_impl.h"
#include "simt/emulator/launch.h"

namespace muo::simt {
namespace {

const cuda::GemmEnvironment kHere{.library = 1, .gpu = "the CPU"};

void gemm(NativeStream stream, const GemmArgs& args) {
  const std::size_t last = args.a.shape.rank() - 1;
  if (args.a.shape[args.transpose_a ? last - 1 : last] == 0)
    return cuda::scale_into(stream, args.d, args.beta == 0.0F ? Tensor{} : args.c, args.beta);
  cuda::GemmAlgorithms& table = cuda::gemm_algorithms();
  const std::string problem = text_of(cuda::problem_of(args));
  if (table.measuring() && !table.find(kHere, problem)) table.record(kHere, problem, {});
  stream->host.enqueue_host("gemm", {}, [args] { host::gemm(args); });
}

const cuda::KernelRegistration<GemmArgs> registration(&gemm);

[[maybe_unused]] const bool registered = [] {
  cuda::offer_gemm_table([] { return kHere; });
  return true;
}();

}  // namespace
}  // namespace muo::simt
