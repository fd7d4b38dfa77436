#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/master.h"
#include "kernels/draw.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

using Kind = InitialValues::Kind;

struct Floats {
  float* y;
  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, const Pack<N>& values) const {
    cuda::store(y + i, values);
  }
};

// Element-wise (elementwise.h): 4 bytes per element, but 20 32-bit products for Philox and, for a
// normal number, some 40 operations in double: bound by arithmetic.
template <Kind kKind, class Values>
struct Draw {
  static constexpr int kPacks = 1;
  Values y;
  CounterRandom random;
  InitialValues init;
  std::int64_t begin, count;

  struct Nothing {};
  template <int N>
  __device__ __forceinline__ Nothing load(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, Nothing) const {
    Pack<N> values;
#pragma unroll
    for (int j = 0; j < N; ++j)
      values.v[j] = value(begin + i + j);
    y.store(i, values);
  }

 private:
  __device__ __forceinline__ float value(std::int64_t element) const {
    const auto a = static_cast<float>(init.a);
    if constexpr (kKind == Kind::kConstant) {
      return a;
    } else if constexpr (kKind == Kind::kLinear) {
      return linear_value(init, element, count);
    } else {
      const auto words = random.words(static_cast<std::uint64_t>(element));
      return random_value<kKind>(a, words[0], words[1]);
    }
  }
};

void draw(NativeStream stream, const DrawArgs& args) {
  const auto launch_kind = [&]<Kind kKind, class Narrowest, class Values>(const Values& y) {
    launch_elementwise<Narrowest>(
        stream, Draw<kKind, Values>{y, args.random, args.init, args.begin, args.count},
        args.y.numel(), {args.y.data, args.upper.data});
  };
  dispatch(args.init.kind, [&]<Kind kKind>() {
    if (args.y.dtype == DType::kU16)
      launch_kind.template operator()<kKind, BF16>(
          SplitMaster{args.y.as<std::uint16_t>(), args.upper.as<BF16>()});
    else
      launch_kind.template operator()<kKind, float>(Floats{args.y.as<float>()});
  });
}

const KernelRegistration registration(&draw);

}  // namespace
}  // namespace muo::cuda
