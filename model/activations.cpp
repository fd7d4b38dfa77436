#include "model/activations.h"

#include <algorithm>

#include "kernels/attention.h"

namespace muo {

std::int64_t head_chunk_rows(const GptConfig& config, std::int64_t rows) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  const std::int64_t fit = std::max<std::int64_t>(kElements / config.padded_vocab(), 16);
  const std::int64_t chunks = (rows + fit - 1) / fit;
  return (rows + chunks - 1) / chunks;
}

Activations::Activations(const GptConfig& c, std::int64_t b, std::int64_t t, bool backward,
                         const std::string& prefix, Arena& arena) {
  const std::int64_t n = b * t;
  const std::int64_t h = c.head_dim();
  const auto make = [&](const std::string& name, Shape shape,
                        MemoryCategory category = MemoryCategory::kActivations) {
    return arena.tensor({.name = prefix + name,
                         .shape = shape,
                         .dtype = DType::kF32,
                         .category = category,
                         .lifespan = Lifespan::kStep});
  };
  x = make("x", {n, c.n_embd});
  x0 = make("x0", {n, c.n_embd});
  rstd0 = make("rstd0", {n});
  // Without backward nothing outlives its block, so one set serves all.
  const std::int64_t sets = backward ? c.n_layer : 1;
  for (std::int64_t i = 0; i < sets; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    BlockActivations a;
    a.attn_in = make(block + "attn_in", {n, c.n_embd});
    a.attn_rstd = make(block + "attn_rstd", {n});
    a.q = make(block + "q", {b, t, c.n_head, h});
    a.k = make(block + "k", {b, t, c.n_kv_head, h});
    a.v = make(block + "v", {b, t, c.n_kv_head, h});
    a.q_rstd = make(block + "q_rstd", {b, t, c.n_head});
    a.k_rstd = make(block + "k_rstd", {b, t, c.n_kv_head});
    a.attn_out = make(block + "attn_out", {b, t, c.n_head, h});
    a.lse = make(block + "lse", {b, c.n_head, t});
    a.mlp_in = make(block + "mlp_in", {n, c.n_embd});
    a.mlp_rstd = make(block + "mlp_rstd", {n});
    a.hidden = make(block + "hidden", {n, 4 * c.n_embd});
    a.hidden_squared = make(block + "hidden_squared", {n, 4 * c.n_embd});
    blocks.push_back(a);
  }
  head.x = make("head.x", {n, c.n_embd});
  head.rstd = make("head.rstd", {n});
  head.logits = make("head.logits", {head_chunk_rows(c, n), c.padded_vocab()});
  head.losses = make("head.losses", {n});
  workspace = make("attention.workspace", {attention_workspace(b, t, c.n_head, c.n_kv_head, h)},
                   MemoryCategory::kWorkspace);
  if (!backward) return;
  gradients.dx = make("dx", {n, c.n_embd});
  gradients.dnormed = make("dnormed", {n, c.n_embd});
  gradients.dq = make("dq", {b, t, c.n_head, h});
  gradients.dk = make("dk", {b, t, c.n_kv_head, h});
  gradients.dv = make("dv", {b, t, c.n_kv_head, h});
  gradients.dattn_out = make("dattn_out", {b, t, c.n_head, h});
  gradients.dhidden = make("dhidden", {n, 4 * c.n_embd});
}

}  // namespace muo
