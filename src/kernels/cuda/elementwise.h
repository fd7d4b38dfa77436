#pragma once

#include <cstdint>

#include "runtime/cuda/vector.h"

namespace muo::cuda {

// load() and store() of N elements that may be several 16-byte accesses: where tensors of two types
// share one loop, as master weights in fp32 and their copy in bf16 do.
template <int N, class T>
__device__ __forceinline__ Pack<N> load_wide(const T* p) {
  constexpr int kStep = N == 1 ? 1 : kWidth<T>;
  Pack<N> out;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    const Pack<kStep> part = load<kStep>(p + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j)
      out.v[i + j] = part.v[j];
  }
  return out;
}

template <int N, class T>
__device__ __forceinline__ void store_wide(T* p, const Pack<N>& x) {
  constexpr int kStep = N == 1 ? 1 : kWidth<T>;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    Pack<kStep> part;
#pragma unroll
    for (int j = 0; j < kStep; ++j)
      part.v[j] = x.v[i + j];
    store(p + i, part);
  }
}

inline constexpr int kElementwiseThreads = 256;

// Element-wise operations. A block takes kElementwiseThreads * Body::kPacks packs of N elements, a
// thread every kElementwiseThreads-th of them: first all loads, then the rest, so that an operation
// in place does not wait for one load before it issues the next. The fewer than N elements that are
// left over go one by one. `Body` has
//   load<N>(i) -> what is read for elements [i, i + N);   finish<N>(i, that): the rest;
//   kPacks: so that some 64 bytes per thread are on their way, which hides the latency of memory.
template <int N, class Body>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(Body body, std::int64_t n) {
  const std::int64_t packs = n / N;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * (kElementwiseThreads * Body::kPacks) + threadIdx.x;
  decltype(body.template load<N>(0)) inputs[Body::kPacks];
#pragma unroll
  for (int k = 0; k < Body::kPacks; ++k)
    if (const std::int64_t pack = first + k * kElementwiseThreads; pack < packs)
      inputs[k] = body.template load<N>(pack * N);
#pragma unroll
  for (int k = 0; k < Body::kPacks; ++k)
    if (const std::int64_t pack = first + k * kElementwiseThreads; pack < packs)
      body.template finish<N>(pack * N, inputs[k]);
  if constexpr (N > 1)
    if (const std::int64_t i = packs * N + threadIdx.x; blockIdx.x == 0 && i < n)
      body.template finish<1>(i, body.template load<1>(i));
}

// N is 1, or what all of the body's tensors, at 16-byte addresses, take as a pack.
template <int N, class Body>
void launch_elementwise(NativeStream stream, const Body& body, std::int64_t n) {
  if (n == 0) return;
  launch(elementwise_kernel<N, Body>, blocks_for(n / N, kElementwiseThreads * Body::kPacks),
         kElementwiseThreads, 0, stream, body, n);
}

}  // namespace muo::cuda
