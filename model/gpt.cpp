#include "model/gpt.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace muo {

Gpt::Gpt(const GptConfig& config, const Size& size, const RotaryTables& rotary,
         const std::string& prefix, Arena& arena)
    : config_(config),
      size_(size),
      params_(index_parameters(config)),
      rotary_(rotary),
      act_(config, size.b, size.t, size.backward, prefix, arena) {}

BlockContext Gpt::block(std::span<const Tensor> weights, std::int64_t layer) const {
  const auto i = static_cast<std::size_t>(layer);
  return {.config = config_,
          .params = params_.blocks[i],
          .weights = weights,
          .act = act_.blocks[size_.backward ? i : 0],
          .rotary = rotary_,
          .workspace = act_.workspace,
          .layer = layer};
}

void Gpt::forward(Stream& stream, std::span<const Tensor> weights, Tensor tokens) const {
  MUO_CHECK((tokens.shape == Shape{size_.b, size_.t}), "tokens ", tokens.shape.text());
  embedding(stream,
            {.y = act_.x, .table = weights[params_.wte], .tokens = tokens.view({tokens.numel()})});
  // The residual stream is updated in place; the norm's backward needs its output, so that is kept.
  rms_norm(stream, {.y = act_.x0, .rstd = act_.rstd0, .x = act_.x});
  stream.copy(act_.x, act_.x0);
  for (std::int64_t i = 0; i < config_.n_layer; ++i)
    block_forward(stream, block(weights, i), act_.x);
  rms_norm(stream, {.y = act_.head.x, .rstd = act_.head.rstd, .x = act_.x});
}

void Gpt::head(Stream& stream, std::span<const Tensor> weights, Tensor targets, float scale,
               const GradientSink* sink) const {
  const Tensor w = weights[params_.lm_head];
  const Tensor flat = targets.view({targets.numel()});
  const std::int64_t rows = flat.numel();
  const std::int64_t chunk = act_.head.logits.shape[0];
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, rows);
    const Tensor logits = act_.head.logits.rows(0, end - begin);
    const Tensor x = act_.head.x.rows(begin, end);
    gemm(stream, {.d = logits, .c = {}, .a = x, .b = w, .transpose_b = true});
    cross_entropy(stream, {.losses = act_.head.losses.rows(begin, end),
                           .logits = logits,
                           .targets = flat.rows(begin, end),
                           .vocab = config_.vocab_size,
                           .softcap = config_.softcap,
                           .gradient_scale = scale,
                           .write_gradient = sink != nullptr});
    if (sink == nullptr) continue;
    const bool last = end == rows;
    weight_gradient(stream, params_.lm_head, logits, x,
                    {.gradients = sink->gradients,
                     .accumulate = sink->accumulate || begin > 0,
                     .ready = last ? sink->ready : nullptr});
    gemm(stream, {.d = act_.gradients.dnormed.rows(begin, end), .c = {}, .a = logits, .b = w});
  }
}

void Gpt::losses(Stream& stream, std::span<const Tensor> weights, Tensor targets) const {
  head(stream, weights, targets, 0.0F, nullptr);
}

void Gpt::losses_and_backward(Stream& stream, std::span<const Tensor> weights, Tensor tokens,
                              Tensor targets, float scale, const GradientSink& sink) const {
  const GradientActivations& flow = act_.gradients;
  head(stream, weights, targets, scale, &sink);
  rms_norm_backward(stream, {.dx = flow.dx,
                             .dy = flow.dnormed,
                             .y = act_.head.x,
                             .rstd = act_.head.rstd,
                             .accumulate = false});
  for (std::int64_t i = config_.n_layer - 1; i >= 0; --i)
    block_backward(stream, block(weights, i), flow, sink);
  rms_norm_backward(
      stream,
      {.dx = flow.dx, .dy = flow.dx, .y = act_.x0, .rstd = act_.rstd0, .accumulate = false});
  embedding_backward(stream, {.dtable = sink.gradients[params_.wte],
                              .dy = flow.dx,
                              .tokens = tokens.view({tokens.numel()}),
                              .accumulate = sink.accumulate});
  if (sink.ready) sink.ready(params_.wte);
}

Tensor Gpt::logits(Stream& stream, std::span<const Tensor> weights, std::int64_t begin,
                   std::int64_t end) const {
  const Tensor out = act_.head.logits.rows(0, end - begin);
  gemm(stream, {.d = out,
                .c = {},
                .a = act_.head.x.rows(begin, end),
                .b = weights[params_.lm_head],
                .transpose_b = true});
  soft_cap(stream, {.logits = out, .softcap = config_.softcap});
  return out;
}

RotaryTables make_rotary_tables(const GptConfig& config, std::int64_t t, Arena& arena) {
  const auto make = [&](const char* name) {
    return arena.tensor({.name = name,
                         .shape = {t, config.head_dim() / 2},
                         .dtype = DType::kF32,
                         .category = MemoryCategory::kWeights,
                         .lifespan = Lifespan::kRun});
  };
  return {.cos = make("rotary.cos"), .sin = make("rotary.sin")};
}

void fill_rotary_tables(Stream& stream, const GptConfig& config, const RotaryTables& tables) {
  rotary_table(stream, {.cos = tables.cos, .sin = tables.sin, .base = config.rope_base});
}

}  // namespace muo
