#include <algorithm>

#include "kernels/argmax.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

using Key = unsigned long long;  // a type that shuffles support

constexpr int kMaxThreads = 512;

// Larger numbers have larger keys; among equal numbers, the first column has the largest key. NaN
// has key 0, which is below the key of every number. Negative zero counts as positive zero, because
// the two compare equal.
__device__ __forceinline__ Key key_of(float x, std::int64_t column) {
  if (isnan(x)) return 0;
  const std::uint32_t bits = __float_as_uint(x + 0.0F);
  const std::uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return Key{ordered} << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(column));
}

__device__ __forceinline__ Key warp_largest(Key x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    x = max(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// One block per row; each thread reads every blockDim.x-th vector of it. Reads sizeof(T) bytes per
// element, bound by bandwidth.
template <class T, int N>
__global__ void __launch_bounds__(kMaxThreads)
    argmax_kernel(std::int32_t* y, const T* x, std::int64_t padded, std::int64_t vocab) {
  x += std::int64_t{blockIdx.x} * padded;
  Key most = 0;
  for (std::int64_t i = std::int64_t{threadIdx.x} * N; i < vocab;
       i += std::int64_t{blockDim.x} * N) {
    const Pack<N> values = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (i + j < vocab) most = max(most, key_of(values.v[j], i + j));
  }
  most = block_reduce(most, Key{0}, [](Key k) { return warp_largest(k); });
  if (threadIdx.x == 0)
    y[blockIdx.x] = most == 0 ? 0 : static_cast<std::int32_t>(0xFFFFFFFFU - (most & 0xFFFFFFFFU));
}

void argmax(NativeStream stream, const ArgmaxArgs& args) {
  const std::int64_t n = args.x.shape[0], padded = args.x.shape[1];
  if (n == 0) return;
  dispatch_packs(args.x.dtype, padded, {args.x.data}, [&]<class T, int N>() {
    const std::int64_t threads =
        std::min<std::int64_t>(ceil_div(ceil_div(args.vocab, N), kWarp) * kWarp, kMaxThreads);
    launch(argmax_kernel<T, N>, blocks_for(n, 1), static_cast<unsigned>(threads), 0, stream,
           args.y.as<std::int32_t>(), args.x.as<T>(), padded, args.vocab);
  });
}

const KernelRegistration registration(&argmax);

}  // namespace
}  // namespace muo::cuda
