#include "model/block.h"

#include <utility>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/decode_attention.h"
#include "kernels/embedding.h"
#include "kernels/fused_product.h"
#include "kernels/gate.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"
#include "runtime/profile_range.h"

namespace muo::model {
namespace {

// Views (b, t, heads, h) as rows of a matrix.
Tensor rows_of(const Tensor& x) {
  return x.view({x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]});
}

// y = x W^T; in a decode step x has few rows.
void linear(Stream& stream, const BlockContext& block, Tensor y, Tensor x, std::size_t w) {
  gemm(stream, {.d = y,
                .c = {},
                .a = x,
                .b = block.weights.use(w),
                .transpose_b = true,
                .few_rows = block.decodes()});
}

// y += x W^T, so that the residual connection needs no pass of its own.
void linear_residual(Stream& stream, const BlockContext& block, Tensor y, Tensor x, std::size_t w) {
  gemm(stream, {.d = y,
                .c = y,
                .a = x,
                .b = block.weights.use(w),
                .beta = 1,
                .transpose_b = true,
                .few_rows = block.decodes()});
}

// dx <- [dx +] dy W
void input_gradient(Stream& stream, Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  gemm(stream, {.d = dx,
                .c = accumulate ? dx : Tensor{},
                .a = dy,
                .b = w,
                .beta = accumulate ? 1.0F : 0.0F});
}

const BlockParams& block_params(const BlockContext& block) {
  return block.params.blocks[static_cast<std::size_t>(block.layer)];
}

// The block's elements of resid_lambdas and x0_lambdas, either weights or gradients;
// absent if disabled.
struct Mix {
  Tensor alpha, beta;
};
template <class TensorOf>
Mix mix_of(const BlockContext& block, const TensorOf& tensor_of) {
  const auto element = [&](std::size_t param) {
    return param == kAbsent ? Tensor{} : tensor_of(param).elements(block.layer, 1);
  };
  return {.alpha = element(block.params.resid_lambdas), .beta = element(block.params.x0_lambdas)};
}
Mix mix_weights(const BlockContext& block) {
  return mix_of(block, [&](std::size_t param) { return block.weights.use(param); });
}

// a.attn_out <- attention of a.q, a.k and a.v. If there is a cache, a.k and a.v are
// also written to it.
void attend_to_keys(Stream& stream, const BlockContext& block) {
  const BlockActivations& a = block.act;
  const std::int64_t window = block.config.window(block.layer);
  const float scale = block.config.attention_scale();
  const KvCache::Layer cache =
      block.cached == nullptr ? KvCache::Layer{}
                              : block.cached->cache.layers[static_cast<std::size_t>(block.layer)];
  if (cache.keys)
    cache_append(stream, {.keys = cache.keys,
                          .values = cache.values,
                          .k = a.k,
                          .v = a.v,
                          .slots = block.cached->slots,
                          .positions = block.cached->positions});
  if (block.decodes()) {
    const Shape of_row{a.q.shape[0], a.q.shape[2], a.q.shape[3]};
    decode_attention(stream, {.out = a.attn_out.view(of_row),
                              .q = a.q.view(of_row),
                              .keys = cache.keys,
                              .values = cache.values,
                              .positions = block.cached->positions,
                              .workspace = block.workspace,
                              .starts = block.cached->starts,
                              .window = window,
                              .scale = scale});
    return;
  }
  attention(stream, {.out = a.attn_out,
                     .lse = a.lse,
                     .q = a.q,
                     .k = a.k,
                     .v = a.v,
                     .workspace = block.workspace,
                     .starts = block.starts,
                     .window = window,
                     .scale = scale,
                     .method = block.config.attention});
}

// a.attn_in <- norm(mixed from); a.x += attention(a.attn_in).
void attend(Stream& stream, const BlockContext& block, Tensor from) {
  const ProfileRange range(ProfileKind::kLayer, "attention");
  const WeightSource& w = block.weights;
  const BlockActivations& a = block.act;
  const BlockParams& p = block_params(block);
  const Mix mix = mix_weights(block);

  if (mix.alpha || mix.beta) {
    mix_norm(stream, {.y = a.attn_in,
                      .rstd = a.attn_rstd,
                      .mixed = a.x,
                      .x = from,
                      .z = block.x0,
                      .alpha = mix.alpha,
                      .beta = mix.beta});
  } else {
    if (from.data != a.x.data) stream.copy(a.x, from);
    rms_norm(stream, {.y = a.attn_in, .rstd = a.attn_rstd, .x = a.x});
  }
  linear(stream, block, rows_of(a.q), a.attn_in, p.c_q);
  linear(stream, block, rows_of(a.k), a.attn_in, p.c_k);
  linear(stream, block, rows_of(a.v), a.attn_in, p.c_v);
  if (block.config.has_value_embedding(block.layer))
    value_embedding(stream, {.v = rows_of(a.v),
                             .gates = a.value_gates,
                             .x = a.attn_in,
                             .weight = w.use(p.ve_gate),
                             .table = w.use(p.value_embed),
                             .tokens = block.tokens});
  for (const auto& [x, rstd] : {std::pair{a.q, a.q_rstd}, std::pair{a.k, a.k_rstd}})
    rotary_norm(stream, {.x = x,
                         .rstd = rstd,
                         .cos = block.rotary.cos,
                         .sin = block.rotary.sin,
                         .scale = block.config.qk_scale,
                         .positions = block.decodes() ? block.cached->positions : Tensor{}});
  attend_to_keys(stream, block);
  linear_residual(stream, block, a.x, rows_of(a.attn_out), p.attn_proj);
}

// a.hidden <- relu(c_fc a.mlp_in)^2.
void expand(Stream& stream, const BlockContext& block) {
  const BlockActivations& a = block.act;
  const std::size_t c_fc = block_params(block).c_fc;
  if (block.config.fused_products && !block.decodes()) {
    gemm_relu_squared(stream, {.y = a.hidden, .x = a.mlp_in, .w = block.weights.use(c_fc)});
    return;
  }
  linear(stream, block, a.hidden, a.mlp_in, c_fc);
  relu_squared(stream, {.y = a.hidden, .x = a.hidden});
}

void norm_for_mlp(Stream& stream, const BlockActivations& a) {
  rms_norm(stream, {.y = a.mlp_in, .rstd = a.mlp_rstd, .x = a.x});
}

// flow.dx <- gradient before the MLP, from that behind it.
void mlp_backward(Stream& stream, const BlockContext& block, const GradientActivations& flow,
                  const GradientSink& sink) {
  const ProfileRange range(ProfileKind::kLayer, "mlp");
  const WeightSource& w = block.weights;
  const BlockActivations& a = block.act;
  const BlockParams& p = block_params(block);
  weight_gradient(stream, p.mlp_proj, flow.dx, a.hidden, sink);
  if (block.config.fused_products) {
    gemm_relu_squared_backward(
        stream, {.dx = flow.dhidden, .dy = flow.dx, .w = w.use(p.mlp_proj), .y = a.hidden});
  } else {
    input_gradient(stream, flow.dhidden, flow.dx, w.use(p.mlp_proj), false);
    relu_squared_backward(stream, {.dx = flow.dhidden, .dy = flow.dhidden, .y = a.hidden});
  }
  weight_gradient(stream, p.c_fc, flow.dhidden, a.mlp_in, sink);
  input_gradient(stream, flow.dnormed, flow.dhidden, w.use(p.c_fc), false);
  rms_norm_backward(
      stream,
      {.dx = flow.dx, .dy = flow.dnormed, .y = a.mlp_in, .rstd = a.mlp_rstd, .accumulate = true});
}

// Gradients of the value embeddings and of their gates, which also read the normed input.
void value_gradients(Stream& stream, const BlockContext& block, const GradientActivations& flow,
                     const GradientSink& sink) {
  const BlockParams& p = block_params(block);
  const BlockActivations& a = block.act;
  value_embedding_backward(stream, {.dx = flow.dnormed,
                                    .dweight = sink.target(p.ve_gate),
                                    .dv = rows_of(flow.dv),
                                    .gates = a.value_gates,
                                    .x = a.attn_in,
                                    .weight = block.weights.use(p.ve_gate),
                                    .table = block.weights.use(p.value_embed),
                                    .tokens = block.tokens,
                                    .accumulate = sink.accumulate});
  sink.announce(p.ve_gate);
  embedding_backward(stream, {.dtable = sink.target(p.value_embed),
                              .dy = rows_of(flow.dv),
                              .tokens = block.tokens,
                              .groups = block.token_groups,
                              .scale = a.value_gates,
                              .accumulate = sink.accumulate});
  sink.announce(p.value_embed);
}

}  // namespace

void weight_gradient(Stream& stream, std::size_t param, Tensor dy, Tensor x,
                     const GradientSink& sink) {
  const Tensor dw = sink.target(param);
  gemm(stream, {.d = dw,
                .c = sink.accumulate ? dw : Tensor{},
                .a = dy,
                .b = x,
                .beta = sink.accumulate ? 1.0F : 0.0F,
                .transpose_a = true});
  sink.announce(param);
}

void block_forward(Stream& stream, const BlockContext& block, Tensor from) {
  const ProfileRange range(ProfileKind::kLayer, "block ", block.layer, " forward");
  attend(stream, block, from);
  const ProfileRange mlp(ProfileKind::kLayer, "mlp");
  norm_for_mlp(stream, block.act);
  expand(stream, block);
  linear_residual(stream, block, block.act.x, block.act.hidden, block_params(block).mlp_proj);
}

void block_recompute(Stream& stream, const BlockContext& block, Tensor from, Recomputed what) {
  if (what == Recomputed::kNone) return;
  const ProfileRange range(ProfileKind::kLayer, "block ", block.layer, " recompute");
  if (what == Recomputed::kBlock) {
    attend(stream, block, from);
    norm_for_mlp(stream, block.act);
  }
  expand(stream, block);
}

void block_backward(Stream& stream, const BlockContext& block, Tensor from,
                    const GradientActivations& flow, const GradientSink& sink) {
  const ProfileRange range(ProfileKind::kLayer, "block ", block.layer, " backward");
  mlp_backward(stream, block, flow, sink);
  const ProfileRange attention(ProfileKind::kLayer, "attention");
  const WeightSource& w = block.weights;
  const BlockActivations& a = block.act;
  const BlockParams& p = block_params(block);

  weight_gradient(stream, p.attn_proj, flow.dx, rows_of(a.attn_out), sink);
  input_gradient(stream, rows_of(flow.dattn_out), flow.dx, w.use(p.attn_proj), false);
  attention_backward(stream, {.dq = flow.dq,
                              .dk = flow.dk,
                              .dv = flow.dv,
                              .dout = flow.dattn_out,
                              .out = a.attn_out,
                              .lse = a.lse,
                              .q = a.q,
                              .k = a.k,
                              .v = a.v,
                              .workspace = block.workspace,
                              .starts = block.starts,
                              .window = block.config.window(block.layer),
                              .scale = block.config.attention_scale(),
                              .method = block.config.attention,
                              .rotary = {.q_rstd = a.q_rstd,
                                         .k_rstd = a.k_rstd,
                                         .cos = block.rotary.cos,
                                         .sin = block.rotary.sin,
                                         .scale = block.config.qk_scale}});
  weight_gradient(stream, p.c_v, rows_of(flow.dv), a.attn_in, sink);
  weight_gradient(stream, p.c_k, rows_of(flow.dk), a.attn_in, sink);
  weight_gradient(stream, p.c_q, rows_of(flow.dq), a.attn_in, sink);
  input_gradient(stream, flow.dnormed, rows_of(flow.dq), w.use(p.c_q), false);
  input_gradient(stream, flow.dnormed, rows_of(flow.dk), w.use(p.c_k), true);
  input_gradient(stream, flow.dnormed, rows_of(flow.dv), w.use(p.c_v), true);
  if (block.config.has_value_embedding(block.layer)) value_gradients(stream, block, flow, sink);
  const Mix mix = mix_weights(block);
  if (!mix.alpha && !mix.beta) {
    rms_norm_backward(stream, {.dx = flow.dx,
                               .dy = flow.dnormed,
                               .y = a.attn_in,
                               .rstd = a.attn_rstd,
                               .accumulate = true});
    return;
  }
  const Mix gradient = mix_of(block, [&](std::size_t param) { return sink.target(param); });
  mix_norm_backward(stream, {.dx = flow.dx,
                             .dz = flow.dx0,
                             .dy = flow.dnormed,
                             .y = a.attn_in,
                             .rstd = a.attn_rstd,
                             .x = from,
                             .z = block.x0,
                             .alpha = mix.alpha,
                             .beta = mix.beta,
                             .dalpha = gradient.alpha,
                             .dbeta = gradient.beta,
                             .add_dx = true,
                             .add_dz = block.layer != block.config.n_layer - 1,
                             .accumulate = sink.accumulate});
}

}  // namespace muo::model
