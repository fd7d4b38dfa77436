#include "model/block.h"

#include <cmath>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace muo {
namespace {

// (b, t, heads, h) as rows of a matrix.
Tensor rows_of(const Tensor& x) {
  return x.view({x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]});
}

float attention_scale(const GptConfig& config) {
  return 1.0F / std::sqrt(static_cast<float>(config.head_dim()));
}

// y = x W^T
void linear(Stream& stream, Tensor y, Tensor x, Tensor w) {
  gemm(stream, {.d = y, .c = {}, .a = x, .b = w, .transpose_b = true});
}

// y += x W^T: the residual connection costs no pass of its own.
void linear_residual(Stream& stream, Tensor y, Tensor x, Tensor w) {
  gemm(stream, {.d = y, .c = y, .a = x, .b = w, .beta = 1, .transpose_b = true});
}

// dx <- [dx +] dy W
void input_gradient(Stream& stream, Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  gemm(stream, {.d = dx,
                .c = accumulate ? dx : Tensor{},
                .a = dy,
                .b = w,
                .beta = accumulate ? 1.0F : 0.0F});
}

}  // namespace

void weight_gradient(Stream& stream, std::size_t param, Tensor dy, Tensor x,
                     const GradientSink& sink) {
  const Tensor dw = sink.gradients[param];
  gemm(stream, {.d = dw,
                .c = sink.accumulate ? dw : Tensor{},
                .a = dy,
                .b = x,
                .beta = sink.accumulate ? 1.0F : 0.0F,
                .transpose_a = true});
  if (sink.ready) sink.ready(param);
}

void block_forward(Stream& stream, const BlockContext& block, Tensor x) {
  const auto& [config, p, w, a, rotary, workspace, layer] = block;

  rms_norm(stream, {.y = a.attn_in, .rstd = a.attn_rstd, .x = x});
  linear(stream, rows_of(a.q), a.attn_in, w[p.c_q]);
  linear(stream, rows_of(a.k), a.attn_in, w[p.c_k]);
  linear(stream, rows_of(a.v), a.attn_in, w[p.c_v]);
  rotary_norm(
      stream,
      {.x = a.q, .rstd = a.q_rstd, .cos = rotary.cos, .sin = rotary.sin, .scale = config.qk_scale});
  rotary_norm(
      stream,
      {.x = a.k, .rstd = a.k_rstd, .cos = rotary.cos, .sin = rotary.sin, .scale = config.qk_scale});
  attention(stream, {.out = a.attn_out,
                     .lse = a.lse,
                     .q = a.q,
                     .k = a.k,
                     .v = a.v,
                     .workspace = workspace,
                     .window = config.window(layer),
                     .scale = attention_scale(config)});
  linear_residual(stream, x, rows_of(a.attn_out), w[p.attn_proj]);

  rms_norm(stream, {.y = a.mlp_in, .rstd = a.mlp_rstd, .x = x});
  linear(stream, a.hidden, a.mlp_in, w[p.c_fc]);
  relu_squared(stream, {.y = a.hidden_squared, .x = a.hidden});
  linear_residual(stream, x, a.hidden_squared, w[p.mlp_proj]);
}

void block_backward(Stream& stream, const BlockContext& block, const GradientActivations& flow,
                    const GradientSink& sink) {
  const auto& [config, p, w, a, rotary, workspace, layer] = block;

  weight_gradient(stream, p.mlp_proj, flow.dx, a.hidden_squared, sink);
  input_gradient(stream, flow.dhidden, flow.dx, w[p.mlp_proj], false);
  relu_squared_backward(stream, {.dx = flow.dhidden, .dy = flow.dhidden, .x = a.hidden});
  weight_gradient(stream, p.c_fc, flow.dhidden, a.mlp_in, sink);
  input_gradient(stream, flow.dnormed, flow.dhidden, w[p.c_fc], false);
  rms_norm_backward(
      stream,
      {.dx = flow.dx, .dy = flow.dnormed, .y = a.mlp_in, .rstd = a.mlp_rstd, .accumulate = true});

  weight_gradient(stream, p.attn_proj, flow.dx, rows_of(a.attn_out), sink);
  input_gradient(stream, rows_of(flow.dattn_out), flow.dx, w[p.attn_proj], false);
  attention_backward(stream, {.dq = flow.dq,
                              .dk = flow.dk,
                              .dv = flow.dv,
                              .dout = flow.dattn_out,
                              .out = a.attn_out,
                              .lse = a.lse,
                              .q = a.q,
                              .k = a.k,
                              .v = a.v,
                              .workspace = workspace,
                              .window = config.window(layer),
                              .scale = attention_scale(config)});
  rotary_norm_backward(stream, {.dx = flow.dq,
                                .y = a.q,
                                .rstd = a.q_rstd,
                                .cos = rotary.cos,
                                .sin = rotary.sin,
                                .scale = config.qk_scale});
  rotary_norm_backward(stream, {.dx = flow.dk,
                                .y = a.k,
                                .rstd = a.k_rstd,
                                .cos = rotary.cos,
                                .sin = rotary.sin,
                                .scale = config.qk_scale});
  weight_gradient(stream, p.c_v, rows_of(flow.dv), a.attn_in, sink);
  weight_gradient(stream, p.c_k, rows_of(flow.dk), a.attn_in, sink);
  weight_gradient(stream, p.c_q, rows_of(flow.dq), a.attn_in, sink);
  input_gradient(stream, flow.dnormed, rows_of(flow.dq), w[p.c_q], false);
  input_gradient(stream, flow.dnormed, rows_of(flow.dk), w[p.c_k], true);
  input_gradient(stream, flow.dnormed, rows_of(flow.dv), w[p.c_v], true);
  rms_norm_backward(
      stream,
      {.dx = flow.dx, .dy = flow.dnormed, .y = a.attn_in, .rstd = a.attn_rstd, .accumulate = true});
}

}  // namespace muo
