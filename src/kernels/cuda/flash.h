#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/dispatch.h"
#include "runtime/cuda/launch.h"

// Attention by the project's own kernels, computed block by block without a t x t matrix (Dao
// 2023, "FlashAttention-2"). Results have the same bits in every run: no sum depends on the
// order of blocks.
namespace muo::cuda {

// On tensor cores, with the requirements stated at kMaxTensorCoreHead (kernels/attention_choice.h);
// lse and workspace need no alignment.
void flash_attention(NativeStream stream, const AttentionArgs& args);
void flash_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// True if the current GPU has warpgroup products.
bool has_warpgroup_products();
// The same gradients, by warpgroup products. The workspace must begin at a multiple of 16 bytes.
void warpgroup_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// In fp32 arithmetic, for all arguments that the operation accepts.
void portable_attention(NativeStream stream, const AttentionArgs& args);
void portable_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// The first launch of either backward pass: workspace (b, heads, t) <- dot products of dout and out
// over the features.
void attention_dots(NativeStream stream, const AttentionBackwardArgs& args);

// ---- Arguments of both kinds of kernels ---------------------------------------------------------

inline constexpr float kLog2E = 1.44269504088896340736F;

// Sizes and strides in elements; Int is the integer type that a kernel computes with.
template <class Int>
struct AttentionGeometry {
  Int t, heads, group, h;  // `group` query heads share a key-value head
  Int window;              // at most t
  float scale;

  __device__ __forceinline__ std::int64_t stride() const { return std::int64_t{heads} * h; }
  __device__ __forceinline__ std::int64_t kv_stride() const { return stride() / group; }
  // Offset of row 0 of a head.
  __device__ __forceinline__ std::int64_t offset(Int row, Int head) const {
    return row * t * stride() + std::int64_t{head} * h;
  }
  __device__ __forceinline__ std::int64_t kv_offset(Int row, Int kv_head) const {
    return row * t * kv_stride() + std::int64_t{kv_head} * h;
  }
  // The same offset in a (b, heads, t) tensor.
  __device__ __forceinline__ std::int64_t row_offset(Int row, Int head) const {
    return (std::int64_t{row} * heads + head) * t;
  }
  // Whether the window admits the pair.
  __device__ __forceinline__ bool visible(Int query, Int key) const {
    using Unsigned = std::make_unsigned_t<Int>;
    return static_cast<Unsigned>(query - key) <= static_cast<Unsigned>(window);
  }
};
template <class Int, class Args>
AttentionGeometry<Int> geometry_of(const Args& args) {
  const Shape& q = args.q.shape;
  return {.t = static_cast<Int>(q[1]),
          .heads = static_cast<Int>(q[2]),
          .group = static_cast<Int>(q[2] / args.k.shape[2]),
          .h = static_cast<Int>(q[3]),
          .window = static_cast<Int>(std::min(args.window, q[1])),
          .scale = args.scale};
}

// The tensors of AttentionArgs and AttentionBackwardArgs.
template <class T, class Int>
struct AttentionTensors {
  T* out;
  float* lse;
  const T* q;
  const T* k;
  const T* v;
  AttentionGeometry<Int> g;

  static AttentionTensors of(const AttentionArgs& args) {
    return {.out = args.out.as<T>(),
            .lse = args.lse.as<float>(),
            .q = args.q.as<T>(),
            .k = args.k.as<T>(),
            .v = args.v.as<T>(),
            .g = geometry_of<Int>(args)};
  }
};
template <class T, class Int>
struct AttentionGradients {
  T* dq;
  T* dk;
  T* dv;
  const T* dout;
  const float* lse;
  const float* dots;  // (b, heads, t): dout . out
  const T* q;
  const T* k;
  const T* v;
  AttentionGeometry<Int> g;

  static AttentionGradients of(const AttentionBackwardArgs& args) {
    return {.dq = args.dq.as<T>(),
            .dk = args.dk.as<T>(),
            .dv = args.dv.as<T>(),
            .dout = args.dout.as<T>(),
            .lse = args.lse.as<float>(),
            .dots = args.workspace.as<float>(),
            .q = args.q.as<T>(),
            .k = args.k.as<T>(),
            .v = args.v.as<T>(),
            .g = geometry_of<Int>(args)};
  }
};

// AttentionArgs::starts, or null.
template <class Args>
const std::int32_t* starts_of(const Args& args) {
  return data_or_null<std::int32_t>(args.starts);
}

// Calls body.operator()<D>() with the first of the sizes kD, kLarger... that holds heads of size h.
// The last size must hold them.
template <int kD, int... kLarger, class Body>
void with_head_size(std::int64_t h, const Body& body) {
  if constexpr (sizeof...(kLarger) > 0)
    if (h > kD) return with_head_size<kLarger...>(h, body);
  body.template operator()<kD>();
}

}  // namespace muo::cuda
