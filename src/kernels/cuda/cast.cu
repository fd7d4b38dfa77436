#include "kernels/cast.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

// Element-wise (elementwise.h): 6 bytes per element, bound by bandwidth.
template <int kPacksOfThread>
struct Copy {
  static constexpr int kPacks = kPacksOfThread;
  __device__ __forceinline__ float operator()(float x) const { return x; }
};

void cast(NativeStream stream, const CastArgs& args) {
  const std::int64_t n = args.x.numel();
  if (args.y.dtype == DType::kBF16)
    launch_map(stream, n, Copy<2>{}, args.y.as<BF16>(), args.x.as<float>());
  else
    launch_map(stream, n, Copy<4>{}, args.y.as<float>(), args.x.as<BF16>());
}

const KernelRegistration registration(&cast);

}  // namespace
}  // namespace muo::cuda
