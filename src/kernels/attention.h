#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention_method.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// Causal attention with a left window: key j is visible to query i iff 0 <= i - j <= window
// (window + 1 keys, the convention of flash-attention) and, if `starts` is given, j >= starts[i],
// which restricts i to its own document. Query head a uses key-value head a / (heads / kv_heads).
// The softmax is in fp32. It is computed block by block with a running maximum, so that no t x t
// matrix exists (Dao 2023, "FlashAttention-2").
struct AttentionArgs {
  Tensor out;          // (b, t, heads, h) out
  Tensor lse;          // (b, heads, t) out, fp32: ln of the sum of e^(scaled scores)
  Tensor q;            // (b, t, heads, h)
  Tensor k;            // (b, t, kv_heads, h)
  Tensor v;            // (b, t, kv_heads, h)
  Tensor workspace;    // (attention_workspace(...) or more) fp32, scratch
  Tensor starts = {};  // (b, t) int32: 0 <= starts[i] <= i, non-decreasing in a row (documents.h)
  std::int64_t window = 0;
  float scale = 1.0F;           // multiplies q k^T, usually 1 / sqrt(h)
  AttentionMethod method = {};  // ignored on the host
};
void attention(Stream& stream, const AttentionArgs& args);

// Tables, scale and saved rstd of the rotary_norm (kernels/rotary.h) that produced q and k, with
// first_position 0 and the same scale for both.
struct AttentionRotary {
  Tensor q_rstd;  // (b, t, heads) fp32
  Tensor k_rstd;  // (b, t, kv_heads) fp32
  Tensor cos;     // (at least t, h/2), q's dtype
  Tensor sin;
  float scale = 1.0F;
};

// Overwrites dq, dk and dv. With grouped queries, dk and dv are summed over the heads of a group,
// in head order. Probabilities are recomputed from lse. All tensors except lse and workspace have
// one dtype, fp32 or bf16; in bf16, probabilities and gradients of scores are rounded before they
// enter products. If `rotary` is given, dq and dk are the gradients with respect to rotary_norm's
// input, as rotary_norm_backward computes them; warpgroup kernels compute them from unrounded
// gradients, all others from rounded ones.
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
  Tensor starts = {};  // the forward's
  std::int64_t window = 0;
  float scale = 1.0F;
  AttentionMethod method = {};  // ignored on the host
  AttentionRotary rotary = {};
};
void attention_backward(Stream& stream, const AttentionBackwardArgs& args);

// The properties of a problem on which the choice of kernels and the size of the scratch depend.
struct AttentionSize {
  std::int64_t b = 0, t = 0, heads = 0, kv_heads = 0, h = 0;
  std::int64_t window = 0;
  float scale = 1.0F;
  DType dtype = DType::kF32;
  AttentionMethod method = {};
  bool documents = false;  // `starts` is given
  bool backward = true;    // false: forward only
};

// Scratch in fp32 elements that is enough for both directions, on the host and, if a backend's
// library is loaded, on the device. The first call for a size may take a second per direction,
// because the library makes plans. Throws InputError if the device does not support size.method.
std::int64_t attention_workspace(const AttentionSize& size);

// Describes in one line which kernels compute attention of this size on the device, and why. Empty
// if there is no device.
// no device.
std::string describe_attention(const AttentionSize& size);

// Whether the device computes gradients of this size faster if it may sum in an arbitrary order,
// i.e. if size.method.deterministic is false. May take a second.
bool attention_is_faster_in_any_order(AttentionSize size);
// Whether the device computes gradients of this size with warpgroup products, which are just as
// fast in a fixed order.
bool attention_uses_warpgroups(AttentionSize size);

// Whether the host multiplies bf16 tensors in bf16 on this CPU; if not, it widens them to fp32.
bool host_attention_multiplies_bf16();

}  // namespace muo
