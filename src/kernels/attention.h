#pragma once

#include <cstdint>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Causal attention with a left window: key j is visible to query i iff 0 <= i - j <= window
// (window + 1 keys, the convention of flash-attention). Query head a uses key-value head
// a / (heads / kv_heads). Softmax in fp32. Computed block by block with a running maximum, so that
// no t x t matrix exists (Dao 2023, "FlashAttention-2").
struct AttentionArgs {
  Tensor out;        // (b, t, heads, h) out
  Tensor lse;        // (b, heads, t) out, fp32: log of the softmax denominator, of scaled scores
  Tensor q;          // (b, t, heads, h)
  Tensor k;          // (b, t, kv_heads, h)
  Tensor v;          // (b, t, kv_heads, h)
  Tensor workspace;  // (attention_workspace(...)) fp32, scratch
  std::int64_t window = 0;
  float scale = 1.0F;  // multiplies q k^T, usually 1 / sqrt(h)
};
void attention(Stream& stream, const AttentionArgs& args);

// Overwrites dq, dk, dv. With grouped queries dk and dv sum over the heads of a group, in head
// order. Probabilities are recomputed from lse. All but lse and workspace are fp32 or bf16, all the
// same; in bf16 the probabilities and the gradients of the scores are rounded before they enter
// products.
struct AttentionBackwardArgs {
  Tensor dq;    // (b, t, heads, h) out
  Tensor dk;    // (b, t, kv_heads, h) out
  Tensor dv;    // (b, t, kv_heads, h) out
  Tensor dout;  // (b, t, heads, h)
  Tensor out;   // (b, t, heads, h) forward output
  Tensor lse;   // (b, heads, t) fp32
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor workspace;  // (attention_workspace(...)) fp32, scratch
  std::int64_t window = 0;
  float scale = 1.0F;
};
void attention_backward(Stream& stream, const AttentionBackwardArgs& args);

// Elements (fp32) of scratch that both directions need at this size.
std::int64_t attention_workspace(std::int64_t b, std::int64_t t, std::int64_t heads,
                                 std::int64_t kv_heads, std::int64_t h);

}  // namespace muo
