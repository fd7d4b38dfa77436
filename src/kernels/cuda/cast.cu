#include "kernels/cast.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

constexpr int kPack = kWidth<BF16>;  // one access of bf16, two of fp32

// Element-wise (elementwise.h): 6 bytes per element, bound by bandwidth.
template <class To, class From>
struct Cast {
  static constexpr int kPacks = sizeof(From) == 4 ? 2 : 4;
  To* y;
  const From* x;

  template <int N>
  __device__ __forceinline__ Pack<N> load(std::int64_t i) const {
    return load_wide<N>(x + i);
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Pack<N>& values) const {
    store_wide(y + i, values);
  }
};

template <class To, class From>
void convert(NativeStream stream, const CastArgs& args) {
  const Cast<To, From> body{args.y.as<To>(), args.x.as<From>()};
  if (vectors_fit<BF16>(0, {body.y, body.x}))
    launch_elementwise<kPack>(stream, body, args.x.numel());
  else
    launch_elementwise<1>(stream, body, args.x.numel());
}

void cast(NativeStream stream, const CastArgs& args) {
  if (args.y.dtype == DType::kBF16)
    convert<BF16, float>(stream, args);
  else
    convert<float, BF16>(stream, args);
}

const KernelRegistration<CastArgs> registration(&cast);

}  // namespace
}  // namespace muo::cuda
