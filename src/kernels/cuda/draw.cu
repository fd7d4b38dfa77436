#include "kernels/cuda/elementwise.h"
#include "kernels/draw.h"
#include "kernels/operation.h"

namespace muo::cuda {
namespace {

using Kind = InitialValues::Kind;

// Element-wise (elementwise.h): 4 bytes per element, but Philox's 20 products of 32 bits, and for a
// normal number some 40 operations in double: bound by arithmetic.
template <Kind kKind>
struct Draw {
  static constexpr int kPacks = 1;
  float* y;
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
    store(y + i, values);
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
  auto* y = args.y.as<float>();
  dispatch(args.init.kind, [&]<Kind kKind>() {
    launch_elementwise<float>(stream,
                              Draw<kKind>{y, args.random, args.init, args.begin, args.count},
                              args.y.numel(), {y});
  });
}

const KernelRegistration registration(&draw);

}  // namespace
}  // namespace muo::cuda
