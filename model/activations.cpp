#include "model/activations.h"

#include <algorithm>

#include "kernels/decode_attention.h"
#include "kernels/embedding.h"

namespace muo::model {

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

namespace {

// Allocates tensors for a pass of the given size from the arena.
class Maker {
 public:
  Maker(const GptConfig& config, const Activations::Size& size, const std::string& prefix,
        Arena& arena)
      : c_(config), b_(size.b), t_(size.t), n_(size.b * size.t), prefix_(prefix), arena_(arena) {}

  [[nodiscard]] Tensor of(DType dtype, const std::string& name, Shape shape,
                          MemoryCategory category = MemoryCategory::kActivations) const {
    return arena_.tensor({.name = prefix_ + name,
                          .shape = shape,
                          .dtype = dtype,
                          .category = category,
                          .lifespan = Lifespan::kStep});
  }
  [[nodiscard]] Tensor make(const std::string& name, Shape shape) const {
    return of(c_.dtype, name, shape);
  }
  [[nodiscard]] Tensor fp32(const std::string& name, Shape shape) const {
    return of(DType::kF32, name, shape);
  }
  [[nodiscard]] Tensor stream(const std::string& name) const {  // (n, c)
    return make(name, {n_, c_.n_embd});
  }
  [[nodiscard]] Tensor hidden(const std::string& block) const {
    return make(block + "hidden", {n_, 4 * c_.n_embd});
  }

  // All activations except x and hidden.
  [[nodiscard]] BlockActivations block(const std::string& block) const {
    const std::int64_t h = c_.head_dim();
    BlockActivations a;
    a.attn_in = stream(block + "attn_in");
    a.attn_rstd = fp32(block + "attn_rstd", {n_});
    a.q = make(block + "q", {b_, t_, c_.n_head, h});
    a.k = make(block + "k", {b_, t_, c_.n_kv_head, h});
    a.v = make(block + "v", {b_, t_, c_.n_kv_head, h});
    a.q_rstd = fp32(block + "q_rstd", {b_, t_, c_.n_head});
    a.k_rstd = fp32(block + "k_rstd", {b_, t_, c_.n_kv_head});
    if (c_.value_embeddings) a.value_gates = fp32(block + "value_gates", {n_, c_.n_kv_head});
    a.attn_out = make(block + "attn_out", {b_, t_, c_.n_head, h});
    a.lse = fp32(block + "lse", {b_, c_.n_head, t_});
    a.mlp_in = stream(block + "mlp_in");
    a.mlp_rstd = fp32(block + "mlp_rstd", {n_});
    return a;
  }

  [[nodiscard]] GradientActivations gradients() const {
    const std::int64_t h = c_.head_dim();
    GradientActivations out;
    out.dx = stream("dx");
    if (c_.x0_lambdas) out.dx0 = stream("dx0");
    if (c_.backout) out.dbackout = stream("dbackout");
    out.dnormed = stream("dnormed");
    out.dhidden = hidden("d");
    std::int64_t used = 0;
    const auto in_dhidden = [&](std::int64_t heads) {
      const Shape shape{b_, t_, heads, h};
      used += shape.numel();
      return out.dhidden.elements(used - shape.numel(), shape.numel()).view(shape);
    };
    out.dq = in_dhidden(c_.n_head);
    out.dk = in_dhidden(c_.n_kv_head);
    out.dv = in_dhidden(c_.n_kv_head);
    out.dattn_out = in_dhidden(c_.n_head);
    return out;
  }

 private:
  const GptConfig& c_;
  std::int64_t b_, t_, n_;
  const std::string& prefix_;
  Arena& arena_;
};

// Activations that do not outlive their block's part of a forward or backward pass: one set serves
// all blocks of a pass.
BlockActivations set_of_pass(const Maker& maker, const std::string& pass, bool backward,
                             const Recompute& recompute) {
  BlockActivations a;
  if (!backward || recompute.blocks > 0) a = maker.block(pass);
  if (!backward || recompute.blocks + recompute.mlps > 0) a.hidden = maker.hidden(pass);
  return a;
}

}  // namespace

Activations::Activations(const GptConfig& c, const Size& size, const std::string& prefix,
                         Arena& arena) {
  const Maker maker(c, size, prefix, arena);
  const bool backward = size.backward;
  const Recompute& recompute = size.recompute;
  const std::int64_t n = size.b * size.t;
  if (c.document_token >= 0 && !size.decode)
    starts = maker.of(DType::kI32, "starts", {size.b, size.t});
  embedded = maker.stream("embedded");
  rstd0 = maker.fp32("rstd0", {n});
  if (c.smear && size.decode) previous = maker.stream("previous");
  if (c.smear) smear_gates = maker.fp32("smear_gates", {size.b, size.t});
  x0 = c.smear ? maker.stream("x0") : embedded;
  // The gradient of a lambda needs the residual stream before the mix, so blocks with lambdas
  // have a stream each. So do blocks that are recomputed from their input, which is the
  // previous block's stream.
  const bool own_streams = backward && (c.resid_lambdas || c.x0_lambdas);
  const auto own_stream = [&](std::int64_t layer) {
    return own_streams || (backward && layer + 1 < recompute.blocks);
  };
  const Tensor stream = own_streams ? Tensor{} : maker.stream("x");
  const BlockActivations forward_set =
      set_of_pass(maker, backward ? "forward." : "h.", backward, recompute);
  const BlockActivations backward_set =
      backward ? set_of_pass(maker, "backward.", backward, recompute) : BlockActivations{};
  for (std::int64_t i = 0; i < (backward ? c.n_layer : 1); ++i) {
    const std::string name = "h." + std::to_string(i) + ".";
    const Recomputed again = backward ? recompute.of(i) : Recomputed::kBlock;
    const Tensor x = own_stream(i) ? maker.stream(name + "x") : stream;
    BlockActivations kept;
    if (again != Recomputed::kBlock) kept = maker.block(name);
    if (again == Recomputed::kNone) kept.hidden = maker.hidden(name);
    const auto of_pass = [&](const BlockActivations& set) {
      BlockActivations a = again == Recomputed::kBlock ? set : kept;
      a.x = x;  // in the backward pass, contains the block's output, which is no longer needed
      if (again == Recomputed::kMlp) a.hidden = set.hidden;
      return a;
    };
    blocks.push_back(of_pass(forward_set));
    if (backward) backward_blocks.push_back(of_pass(backward_set));
  }
  if (c.backout)
    backout = own_streams ? blocks[static_cast<std::size_t>(c.backout_layer())].x
                          : maker.stream("backout");
  const Shape chunk{head_chunk_rows(c, n), c.padded_vocab()};
  head.x = maker.stream("head.x");
  head.rstd = maker.fp32("head.rstd", {n});
  if (size.logits) head.scores = maker.fp32("head.scores", chunk);
  if (size.logits && c.dtype == DType::kF32)
    head.logits = head.scores;
  else if (backward || !size.logits)
    head.logits = maker.make("head.logits", chunk);
  head.losses = maker.fp32("head.losses", {n});
  if (backward)
    token_groups = maker.of(DType::kI32, "token_groups", {token_groups_size(n, c.padded_vocab())});
  std::int64_t scratch = 0;
  if (size.decode) scratch = decode_attention_workspace(size.b, c.n_head, c.seq_len, c.head_dim());
  for (std::int64_t i = 0; i < c.n_layer && !size.decode; ++i)
    scratch =
        std::max(scratch, attention_workspace(attention_size(c, size.b, size.t, i, backward)));
  workspace = maker.of(DType::kF32, "attention.workspace", {scratch}, MemoryCategory::kWorkspace);
  if (backward) gradients = maker.gradients();
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
          .documents = config.document_token >= 0,
          .backward = backward};
}

}  // namespace muo::model
