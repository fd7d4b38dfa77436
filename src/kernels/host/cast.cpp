#include "kernels/cast.h"

#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

void cast(const CastArgs& args) {
  if (args.y.dtype == DType::kBF16)
    simd::copy(args.y.as<BF16>(), args.x.as<float>(), args.y.numel());
  else
    simd::copy(args.y.as<float>(), args.x.as<BF16>(), args.y.numel());
}

const KernelRegistration kRegistration(&cast);

}  // namespace
}  // namespace muo::host
