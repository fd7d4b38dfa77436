
#include "kernels/host/cast.h"

#include "kernels/host/simd_bf16.h"
#include "kernels/operation.h"

namespace muo::host {
namespace {

template <class To, class From>
void convert(const CastArgs& args) {
  To* y = args.y.as<To>();
  const From* x = args.x.as<From>();
  simd::for_lanes(args.y.numel(), [&](std::int64_t i, auto lanes) {
    simd::store(y + i, simd::load(x + i, lanes), lanes);
  });
}

}  // namespace

void cast(const CastArgs& args) {
  if (args.y.dtype == DType::kBF16)
    convert<BF16, float>(args);
  else
    convert<float, BF16>(args);
}

namespace {
const KernelRegistration<CastArgs> kCast(&cast);
}  // namespace
}  // namespace muo::host
