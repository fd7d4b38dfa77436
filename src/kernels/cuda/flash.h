#pragma once

#include "kernels/attention.h"

// Attention by the project's own kernels, block by block without a t x t matrix (Dao 2023,
// "FlashAttention-2"). Bits are the same on every run: no sum depends on the order of blocks.
namespace muo::cuda {

// On tensor cores: bf16, head sizes that are multiples of 8 up to this, tensors that begin at
// multiples of 16 bytes (except lse and workspace), a positive scale.
inline constexpr std::int64_t kMostFlashHead = 128;
void flash_attention(NativeStream stream, const AttentionArgs& args);
void flash_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// In fp32 arithmetic: everything that the operation accepts.
void portable_attention(NativeStream stream, const AttentionArgs& args);
void portable_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// Elements of scratch of either: the dot products of the backward pass.
inline std::int64_t flash_workspace(std::int64_t b, std::int64_t t, std::int64_t heads) {
  return b * t * heads;
}

// First launch of either backward pass: workspace (b, heads, t) <- dot products of dout and out
// over the features.
void attention_dots(NativeStream stream, const AttentionBackwardArgs& args);

}  // namespace muo::cuda
