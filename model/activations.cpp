#include "model/activations.h"

#include <algorithm>

namespace muo {

std::int64_t head_chunk_rows(const GptConfig& config, std::int64_t rows) {
  const std::int64_t fit = std::max<std::int64_t>(
      config.head_chunk_bytes / size_of(config.dtype) / config.padded_vocab(), 16);
  const std::int64_t chunks = (rows + fit - 1) / fit;
  return (rows + chunks - 1) / chunks;
}

double recomputed_flops_per_token(const GptConfig& c, const Recompute& recompute) {
  const auto width = static_cast<double>(c.n_embd);
  const double kv_width = static_cast<double>(c.n_kv_head * c.head_dim());
  const double c_fc = 2 * 4 * width * width;
  const double c_q_k_v_proj = 2 * (2 * width * width + 2 * width * kv_width);
  double flops = 0;
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const Recomputed what = recompute.of(i);
    if (what != Recomputed::kNone) flops += c_fc;
    if (what == Recomputed::kBlock)
      flops += c_q_k_v_proj + 4 * width * static_cast<double>(std::min(c.window(i), c.seq_len));
  }
  return flops;
}

Activations::Activations(const GptConfig& c, const Size& size, const std::string& prefix,
                         Arena& arena) {
  const auto& [b, t, backward, logits, recompute] = size;
  const std::int64_t n = b * t;
  const std::int64_t h = c.head_dim();
  const auto of = [&](DType dtype, const std::string& name, Shape shape,
                      MemoryCategory category = MemoryCategory::kActivations) {
    return arena.tensor({.name = prefix + name,
                         .shape = shape,
                         .dtype = dtype,
                         .category = category,
                         .lifespan = Lifespan::kStep});
  };
  const auto make = [&](const std::string& name, Shape shape) { return of(c.dtype, name, shape); };
  const auto fp32 = [&](const std::string& name, Shape shape) {
    return of(DType::kF32, name, shape);
  };
  embedded = make("embedded", {n, c.n_embd});
  rstd0 = fp32("rstd0", {n});
  if (c.smear) smear_gates = fp32("smear_gates", {b, t});
  x0 = c.smear ? make("x0", {n, c.n_embd}) : embedded;
  // The gradient of a lambda needs the stream as it was before: mixed blocks have one each. So
  // does a block that is made again from its input, the stream of the block before.
  const bool own_streams = backward && (c.resid_lambdas || c.x0_lambdas);
  const auto own_stream = [&](std::int64_t layer) {
    return own_streams || (backward && layer + 1 < recompute.blocks);
  };
  const Tensor stream = own_streams ? Tensor{} : make("x", {n, c.n_embd});
  const auto make_block = [&](const std::string& block, Tensor x) {
    BlockActivations a;
    a.x = x;
    a.attn_in = make(block + "attn_in", {n, c.n_embd});
    a.attn_rstd = fp32(block + "attn_rstd", {n});
    a.q = make(block + "q", {b, t, c.n_head, h});
    a.k = make(block + "k", {b, t, c.n_kv_head, h});
    a.v = make(block + "v", {b, t, c.n_kv_head, h});
    a.q_rstd = fp32(block + "q_rstd", {b, t, c.n_head});
    a.k_rstd = fp32(block + "k_rstd", {b, t, c.n_kv_head});
    if (c.value_embeddings) a.value_gates = fp32(block + "value_gates", {n, c.n_kv_head});
    a.attn_out = make(block + "attn_out", {b, t, c.n_head, h});
    a.lse = fp32(block + "lse", {b, c.n_head, t});
    a.mlp_in = make(block + "mlp_in", {n, c.n_embd});
    a.mlp_rstd = fp32(block + "mlp_rstd", {n});
    return a;
  };
  const auto make_hidden = [&](const std::string& block) {
    return make(block + "hidden", {n, 4 * c.n_embd});
  };
  // What does not outlive its block, forward or backward: one set serves all blocks of a pass.
  struct Pass {
    BlockActivations block;
    Tensor hidden;
  };
  const auto make_pass = [&](const std::string& pass) {
    Pass made;
    if (!backward || recompute.blocks > 0) made.block = make_block(pass, {});
    if (!backward || recompute.blocks + recompute.mlps > 0) made.hidden = make_hidden(pass);
    return made;
  };
  const Pass forward_pass = make_pass(backward ? "forward." : "h.");
  const Pass backward_pass = backward ? make_pass("backward.") : Pass{};
  for (std::int64_t i = 0; i < (backward ? c.n_layer : 1); ++i) {
    const std::string name = "h." + std::to_string(i) + ".";
    const Recomputed again = backward ? recompute.of(i) : Recomputed::kBlock;
    const Tensor x = own_stream(i) ? make(name + "x", {n, c.n_embd}) : stream;
    const BlockActivations kept =
        again == Recomputed::kBlock ? BlockActivations{} : make_block(name, x);
    const Tensor hidden = again == Recomputed::kNone ? make_hidden(name) : Tensor{};
    const auto of_pass = [&](const Pass& pass) {
      BlockActivations a = again == Recomputed::kBlock ? pass.block : kept;
      a.x = x;  // backward finds the block's output there, which nobody needs any more
      a.hidden = again == Recomputed::kNone ? hidden : pass.hidden;
      return a;
    };
    blocks.push_back(of_pass(forward_pass));
    if (backward) backward_blocks.push_back(of_pass(backward_pass));
  }
  if (c.backout)
    backout = own_streams ? blocks[static_cast<std::size_t>(c.backout_layer())].x
                          : make("backout", {n, c.n_embd});
  const Shape chunk{head_chunk_rows(c, n), c.padded_vocab()};
  head.x = make("head.x", {n, c.n_embd});
  head.rstd = fp32("head.rstd", {n});
  head.logits = make("head.logits", chunk);
  if (logits) head.scores = c.dtype == DType::kF32 ? head.logits : fp32("head.scores", chunk);
  head.losses = fp32("head.losses", {n});
  std::int64_t scratch = 0;
  for (std::int64_t i = 0; i < c.n_layer; ++i)
    scratch = std::max(scratch, attention_workspace(attention_size(c, b, t, i, backward)));
  workspace = of(DType::kF32, "attention.workspace", {scratch}, MemoryCategory::kWorkspace);
  if (!backward) return;
  gradients.dx = make("dx", {n, c.n_embd});
  if (c.x0_lambdas) gradients.dx0 = make("dx0", {n, c.n_embd});
  if (c.backout) gradients.dbackout = make("dbackout", {n, c.n_embd});
  gradients.dnormed = make("dnormed", {n, c.n_embd});
  gradients.dq = make("dq", {b, t, c.n_head, h});
  gradients.dk = make("dk", {b, t, c.n_kv_head, h});
  gradients.dv = make("dv", {b, t, c.n_kv_head, h});
  gradients.dattn_out = make("dattn_out", {b, t, c.n_head, h});
  gradients.dhidden = make("dhidden", {n, 4 * c.n_embd});
}

AttentionSize attention_size(const GptConfig& config, std::int64_t b, std::int64_t t,
                             std::int64_t layer, bool backward) {
  return {.b = b,
          .t = t,
          .heads = config.n_head,
          .kv_heads = config.n_kv_head,
          .h = config.head_dim(),
          .window = config.window(layer),
          .scale = config.attention_scale(),
          .dtype = config.dtype,
          .method = config.attention,
          .backward = backward};
}

}  // namespace muo
