#include "kernels/cuda/sums.h"
#include "kernels/dispatch.h"
#include "kernels/fingerprint.h"
#include "kernels/operation.h"
#include "runtime/cuda/vector.h"

namespace muo::cuda {
namespace {

using Hash = unsigned long long;  // a type that atomicAdd supports

constexpr int kThreads = 256;

__device__ __forceinline__ Hash mix(Hash z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

__device__ __forceinline__ std::uint32_t bits_of(BF16 x) { return x.bits; }
__device__ __forceinline__ std::uint32_t bits_of(float x) { return __float_as_uint(x); }

__device__ __forceinline__ Hash hash(std::uint32_t bits, std::int64_t index) {
  constexpr Hash kGoldenRatio = 0x9E3779B97F4A7C15ULL;
  return mix(bits + (static_cast<Hash>(index) + 1) * kGoldenRatio);
}

__global__ void clear_kernel(Hash* out) { *out = 0; }

// Grid-stride over 16-byte accesses, with one atomic integer addition per block; integer sums do
// not depend on the order. sizeof(T) bytes per element, but two 64-bit products, some 25
// instructions: bound by arithmetic, especially in bf16.
template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads)
    fingerprint_kernel(Hash* out, const T* x, std::int64_t n) {
  constexpr int kStep = kVectors ? kWidth<T> : 1;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t packs = n / kStep;
  Hash sum = 0;
  for (std::int64_t pack = thread; pack < packs; pack += threads) {
    const std::int64_t i = pack * kStep;
    if constexpr (kVectors) {
      const uint4 raw = *reinterpret_cast<const uint4*>(x + i);
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if constexpr (sizeof(T) == 2) {
          sum += hash(words[j] & 0xFFFFU, i + 2 * j);
          sum += hash(words[j] >> 16, i + 2 * j + 1);
        } else {
          sum += hash(words[j], i + j);
        }
    } else {
      sum += hash(bits_of(x[i]), i);
    }
  }
  if (const std::int64_t i = packs * kStep + thread; i < n) sum += hash(bits_of(x[i]), i);
  sum = block_sum(sum);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}

void fingerprint(NativeStream stream, const FingerprintArgs& args) {
  auto* out = reinterpret_cast<Hash*>(args.out.as<std::int64_t>());
  launch(clear_kernel, 1, 1, 0, stream, out);
  dispatch(args.x.dtype, [&]<class T>() {
    const std::int64_t n = args.x.numel();
    const bool vectors = vectors_fit<T>(0, {args.x.data});
    launch(vectors ? fingerprint_kernel<T, true> : fingerprint_kernel<T, false>,
           blocks_for(n, kThreads * kWidth<T>, kManyBlocks), kThreads, 0, stream, out,
           args.x.as<T>(), n);
  });
}

const KernelRegistration registration(&fingerprint);

}  // namespace
}  // namespace muo::cuda
