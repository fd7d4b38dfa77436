#pragma once

#include <vector>

#include "base/enum_names.h"
#include "kernels/attention.h"
#include "model/gpt_config.h"
#include "runtime/memory/arena.h"

namespace muo::model {

// THE list of activations. Rows are (batch, position) pairs: n = b * t. The dtype is that of the
// configuration unless stated otherwise. All are kStep tensors: the memory plan derives their
// lifetimes from the captured graph. Tensors of disabled extras are absent.

// The activations of a layer that the backward pass recomputes, bit by bit as the forward pass
// computed them, instead of keeping them: none, the MLP's hidden activations from the MLP's input
// (one product), or the whole block from the block's input (Chen et al. 2016, "Training deep nets
// with sublinear memory cost").
enum class Recomputed : std::uint8_t { kNone, kMlp, kBlock };
constexpr auto names_of(Recomputed) { return name_list("none", "mlp", "block"); }

// Layers to recompute: the first `blocks` of them as a whole, then the MLP of the next `mlps`. The
// first layers are chosen because their activations would be kept longest.
struct Recompute {
  std::int64_t blocks = 0, mlps = 0;
  [[nodiscard]] Recomputed of(std::int64_t layer) const {
    if (layer < blocks) return Recomputed::kBlock;
    return layer < blocks + mlps ? Recomputed::kMlp : Recomputed::kNone;
  }
};

// FLOPs per token in addition to flops_per_token(): recomputed products and attention.
double recomputed_flops_per_token(const GptConfig& config, const Recompute& recompute);

struct BlockActivations {
  Tensor x;                   // (n, c)  the residual stream: mixed on entry, then added to
  Tensor attn_in, attn_rstd;  // (n, c), (n) fp32      normed input of attention
  Tensor q, k, v;             // (b, t, heads, h)      after rotary and norm (q, k); gated value (v)
  Tensor q_rstd, k_rstd;      // (b, t, heads) fp32
  Tensor value_gates;         // (n, kv_heads) fp32
  Tensor attn_out, lse;       // (b, t, heads, h), (b, heads, t) fp32
  Tensor mlp_in, mlp_rstd;    // (n, c), (n) fp32
  Tensor hidden;              // (n, 4 c)              relu(c_fc's output)^2
};

struct HeadActivations {
  Tensor x, rstd;  // (n, c), (n) fp32     normed input of lm_head
  Tensor logits;   // (chunk, padded vocab), for losses
  Tensor scores;   // (chunk, padded vocab) fp32, soft-capped; with Size::logits, then `logits` may
                   // be absent
  Tensor losses;   // (n) fp32
};

// Gradients of activations. There is one set, which the blocks use one after another.
struct GradientActivations {
  Tensor dx;          // (n, c) of the residual stream
  Tensor dx0;         // (n, c) of x0, from the blocks that mixed it in
  Tensor dbackout;    // (n, c) of the kept stream
  Tensor dnormed;     // (n, c)
  Tensor dhidden;     // (n, 4 c); the tensors below share its memory after the MLP's backward pass
  Tensor dq, dk, dv;  // as q, k, v
  Tensor dattn_out;   // as attn_out
};

struct Activations {
  struct Size {
    std::int64_t b = 1, t = 1;  // rows and positions; t may differ from the configured seq_len
    bool backward = true;
    bool logits = false;  // Gpt::logits() will be called
    bool decode = false;  // for Gpt::decode(): b rows of one position, without backward
    Recompute recompute = {};
  };

  Tensor starts;                         // (b, t) int32  kernels/documents.h; only with documents
  Tensor embedded, rstd0;                // (n, c), (n) fp32  normed embedding
  Tensor previous;                       // (n, c)  of the previous tokens; if decode and smear
  Tensor smear_gates;                    // (b, t) fp32
  Tensor x0;                             // (n, c)  after smear; `embedded` without smear
  std::vector<BlockActivations> blocks;  // written by forward; only one without backward
  // Read by the backward pass; differ from `blocks` in what is recomputed.
  std::vector<BlockActivations> backward_blocks;
  Tensor backout;  // (n, c) stream after the middle block
  HeadActivations head;
  GradientActivations gradients;  // absent without backward
  Tensor token_groups;            // int32  kernels/embedding.h; absent without backward
  Tensor workspace;               // attention's scratch, fp32

  Activations(const GptConfig& config, const Size& size, const std::string& prefix, Arena& arena);
};

// Rows of the batch whose logits are computed at once: as many as take about
// config.head_chunk_bytes, which is enough not to re-read the weights and their gradient too often.
std::int64_t head_chunk_rows(const GptConfig& config, std::int64_t rows);

// The attention problem of one layer, for b rows of t tokens, with or without gradients.
AttentionSize attention_size(const GptConfig& config, std::int64_t b, std::int64_t t,
                             std::int64_t layer, bool backward);

}  // namespace muo::model
