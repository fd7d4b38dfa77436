#pragma once

#include "kernels/attention.h"

// Attention by the project's own kernels, block by block without a t x t matrix (Dao 2023,
// "FlashAttention-2"). Bits are the same on every run: no sum depends on the order of blocks.
namespace muo::cuda {

// On tensor cores: what kMostTensorCoreHead (kernels/attention_choice.h) is said of. lse and
// workspace may begin anywhere.
void flash_attention(NativeStream stream, const AttentionArgs& args);
void flash_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// In fp32 arithmetic: everything that the operation accepts.
void portable_attention(NativeStream stream, const AttentionArgs& args);
void portable_attention_backward(NativeStream stream, const AttentionBackwardArgs& args);

// First launch of either backward pass: workspace (b, heads, t) <- dot products of dout and out
// over the features.
void attention_dots(NativeStream stream, const AttentionBackwardArgs& args);

}  // namespace muo::cuda
