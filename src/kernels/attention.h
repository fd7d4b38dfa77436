#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention_method.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Causal attention with a left window: key j is visible to query i iff 0 <= i - j <= window
// (window + 1 keys, the convention of flash-attention) and, where `starts` is given, j >=
// starts[i]: then i sees its own document only. Query head a uses key-value head a / (heads /
// kv_heads). Softmax in fp32. Computed block by block with a running maximum, so that no t x t
// matrix exists (Dao 2023, "FlashAttention-2").
struct AttentionArgs {
  Tensor out;          // (b, t, heads, h) out
  Tensor lse;          // (b, heads, t) out, fp32: ln of the sum of e^(scaled scores), as below
  Tensor q;            // (b, t, heads, h)
  Tensor k;            // (b, t, kv_heads, h)
  Tensor v;            // (b, t, kv_heads, h)
  Tensor workspace;    // (attention_workspace(...) or more) fp32, scratch
  Tensor starts = {};  // (b, t) int32: 0 <= starts[i] <= i, never falling in a row (documents.h)
  std::int64_t window = 0;
  float scale = 1.0F;           // multiplies q k^T, usually 1 / sqrt(h)
  AttentionMethod method = {};  // of devices
};
void attention(Stream& stream, const AttentionArgs& args);

// What rotary_norm (kernels/rotary.h) did to make q and k, at first_position 0 and one scale.
struct AttentionRotary {
  Tensor q_rstd;  // (b, t, heads) fp32
  Tensor k_rstd;  // (b, t, kv_heads) fp32
  Tensor cos;     // (at least t, h/2), as q
  Tensor sin;
  float scale = 1.0F;
};

// Overwrites dq, dk, dv. With grouped queries dk and dv sum over the heads of a group, in head
// order. Probabilities are recomputed from lse. All but lse and workspace are fp32 or bf16, all the
// same; in bf16 the probabilities and the gradients of the scores are rounded before they enter
// products. Where `rotary` is given, dq and dk are gradients of what rotary_norm read: by
// rotary_norm_backward, from gradients that it finds rounded or, in kernels of warpgroups, not.
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
  Tensor workspace;    // (attention_workspace(...) or more) fp32, scratch
  Tensor starts = {};  // as forward's
  std::int64_t window = 0;
  float scale = 1.0F;
  AttentionMethod method = {};  // of devices
  AttentionRotary rotary = {};
};
void attention_backward(Stream& stream, const AttentionBackwardArgs& args);

// What scratch depends on.
struct AttentionSize {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;
  float scale = 1.0F;
  DType dtype = DType::kF32;
  AttentionMethod method = {};
  bool documents = false;  // `starts` is given
  bool backward = true;    // false: gradients will not be asked for
};

// Elements (fp32) of scratch that both directions need: on the host, and on the device if a
// backend's library is loaded. The first call for a size may take a second for each direction, as
// it makes plans. Throws InputError if size.method cannot be had on the device.
std::int64_t attention_workspace(const AttentionSize& size);

// One line: how attention of this size is computed on the device, and why so. Empty without one.
std::string describe_attention(const AttentionSize& size);

// Whether the device computes gradients of this size in an order of its own choosing, and so
// faster, if size.method.deterministic does not hold. May take a second.
bool attention_gains_by_any_order(AttentionSize size);
// Whether it computes them by products of warpgroups: in a fixed order, and as fast.
bool attention_is_by_warpgroups(AttentionSize size);

// Whether the host's products here are of bf16, where tensors are: else it widens them to fp32.
bool host_attention_multiplies_bf16();

}  // namespace muo
