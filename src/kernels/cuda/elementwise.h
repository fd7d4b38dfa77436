#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "runtime/cuda/vector.h"

namespace muo::cuda {

// load() and store() of N elements in one or more 16-byte accesses, for loops over tensors of two
// types, such as fp32 master weights and their bf16 replica.
template <int N, class T>
__device__ __forceinline__ Pack<N> load_wide(const T* p) {
  constexpr int kStep = N < kWidth<T> ? N : kWidth<T>;
  Pack<N> out;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    const Pack<kStep> access = load<kStep>(p + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j)
      out.v[i + j] = access.v[j];
  }
  return out;
}

template <int N, class T>
__device__ __forceinline__ void store_wide(T* p, const Pack<N>& x) {
  constexpr int kStep = N == 1 ? 1 : kWidth<T>;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    Pack<kStep> access;
#pragma unroll
    for (int j = 0; j < kStep; ++j)
      access.v[j] = x.v[i + j];
    store(p + i, access);
  }
}

// PyTorch's lerp, whose form depends on the weight.
__device__ __forceinline__ float lerp(float a, float b, float weight) {
  return weight < 0.5F ? fmaf(weight, b - a, a) : fmaf(weight - 1.0F, b - a, b);
}

// For a loop over tensors of two types: the type of which more elements fit into a 16-byte access.
template <class A, class B>
using Narrower = std::conditional_t<(sizeof(A) < sizeof(B)), A, B>;

inline constexpr int kElementwiseThreads = 256;

// The loop of element-wise operations. A block processes kElementwiseThreads * Body::kPacks packs
// of N elements; each thread processes every kElementwiseThreads-th of them. It issues all loads
// before any store, so that an in-place operation does not wait for one load before it issues the
// next. The remaining elements, fewer than N, are processed one by one. `Body` has
//   load<N>(i) -> the inputs of elements [i, i + N);   finish<N>(i, inputs): computes and stores;
//   kPacks: chosen so that some 64 bytes per thread are in flight, to hide the latency of memory.
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

// T is the narrowest type of the body's tensors; `addresses` are those of the tensors, null for
// absent ones. A pack is one 16-byte access of T if all addresses are aligned accordingly.
template <class T, class Body>
void launch_elementwise(NativeStream stream, const Body& body, std::int64_t n,
                        std::initializer_list<const void*> addresses) {
  if (n == 0) return;
  with_width<T>(vectors_fit<T>(0, addresses), [&]<int N>() {
    launch(elementwise_kernel<N, Body>, blocks_for(n / N, kElementwiseThreads * Body::kPacks),
           kElementwiseThreads, 0, stream, body, n);
  });
}

// to[i] = f(from[0][i]) or f(from[0][i], from[1][i]), in fp32. `F` is plain data with kPacks and
// that function as a device function.
template <class F, class To, class From, int kInputs>
struct Map {
  static constexpr int kPacks = F::kPacks;
  F f;
  To* to;
  const From* from[kInputs];

  template <int N>
  struct Inputs {
    Pack<N> of[kInputs];
  };
  template <int N>
  __device__ __forceinline__ Inputs<N> load(std::int64_t i) const {
    Inputs<N> x;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      x.of[k] = load_wide<N>(from[k] + i);
    return x;
  }
  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Inputs<N>& x) const {
    Pack<N> y;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if constexpr (kInputs == 1)
        y.v[j] = f(x.of[0].v[j]);
      else
        y.v[j] = f(x.of[0].v[j], x.of[1].v[j]);
    store_wide(to + i, y);
  }
};

template <class F, class To, class From, class... Others>
void launch_map(NativeStream stream, std::int64_t n, const F& f, To* to, const From* from,
                const Others*... others) {
  launch_elementwise<Narrower<To, From>>(
      stream, Map<F, To, From, 1 + sizeof...(Others)>{f, to, {from, others...}}, n,
      {to, from, others...});
}

}  // namespace muo::cuda
