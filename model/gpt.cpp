#include "model/gpt.h"

#include <algorithm>

#include "kernels/argmax.h"
#include "kernels/cross_entropy.h"
#include "kernels/documents.h"
#include "kernels/embedding.h"
#include "kernels/gate.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"
#include "runtime/profile_range.h"

namespace muo::model {

Gpt::Gpt(const GptConfig& config, const Size& size, const RotaryTables& rotary,
         const std::string& prefix, Arena& arena)
    : config_(config),
      size_(size),
      params_(index_parameters(config)),
      rotary_(rotary),
      act_(config, size, prefix, arena) {}

Gpt::BlockInput Gpt::block_input(const WeightSource& weights, Tensor tokens,
                                 std::span<const BlockActivations> blocks, std::int64_t layer,
                                 const CacheUse* cached) const {
  const auto of_layer = [&](std::int64_t i) -> const BlockActivations& {
    return blocks[blocks.size() > 1 ? static_cast<std::size_t>(i) : 0];
  };
  return {.block = {.config = config_,
                    .params = params_,
                    .weights = weights,
                    .act = of_layer(layer),
                    .rotary = rotary_,
                    .tokens = tokens.view({tokens.numel()}),
                    .token_groups = act_.token_groups,
                    .starts = act_.starts,
                    .x0 = act_.x0,
                    .workspace = act_.workspace,
                    .layer = layer,
                    .cached = cached},
          .from = layer == 0 ? act_.x0 : of_layer(layer - 1).x};
}

void Gpt::forward(Stream& stream, const WeightSource& weights, Tensor tokens) const {
  const ProfileRange range(ProfileKind::kPhase, "forward");
  MUO_CHECK((tokens.shape == Shape{size_.b, size_.t}), "tokens are ", tokens.shape.text(),
            ", not (b, t)");
  embed(stream, weights, tokens, nullptr);
  transform(stream, weights, tokens, nullptr);
}

void Gpt::prefill(Stream& stream, const WeightSource& weights, Tensor tokens, const KvCache& cache,
                  Tensor slots) const {
  const ProfileRange range(ProfileKind::kPhase, "prefill");
  MUO_CHECK((tokens.shape == Shape{size_.b, size_.t}), "tokens are ", tokens.shape.text(),
            ", not (b, t)");
  const CacheUse use{.cache = cache, .slots = slots};
  embed(stream, weights, tokens, nullptr);
  transform(stream, weights, tokens, &use);
}

void Gpt::decode(Stream& stream, const WeightSource& weights, const Step& step,
                 const KvCache& cache) const {
  const ProfileRange range(ProfileKind::kPhase, "decode");
  MUO_CHECK(size_.decode && size_.t == 1, "decode() needs a Gpt with Size::decode and t = 1");
  MUO_CHECK(config_.document_token < 0 || step.starts, "decode() with documents needs step.starts");
  const CacheUse use{.cache = cache, .positions = step.positions, .starts = step.starts};
  embed(stream, weights, step.tokens, &step);
  transform(stream, weights, step.tokens, &use);
}

void Gpt::embed(Stream& stream, const WeightSource& weights, Tensor tokens,
                const Step* step) const {
  Tensor starts = act_.starts;
  if (starts)
    document_starts(stream,
                    {.starts = starts, .tokens = tokens, .document_token = config_.document_token});
  if (step != nullptr && step->starts) starts = step->starts.view({size_.b, 1});
  const Tensor raw = act_.blocks.front().x;  // free until the first block begins
  const auto normed = [&](Tensor y, Tensor of) {
    embedding(stream,
              {.y = raw, .table = weights.use(params_.wte), .tokens = of.view({of.numel()})});
    rms_norm(stream, {.y = y, .rstd = act_.rstd0, .x = raw});
  };
  if (act_.previous) normed(act_.previous, step->previous);
  normed(act_.embedded, tokens);
  if (config_.smear)
    smear(stream, {.y = in_rows(act_.x0),
                   .gates = act_.smear_gates,
                   .x = in_rows(act_.embedded),
                   .weight = weights.use(params_.smear_gate),
                   .lambda = weights.use(params_.smear_lambda),
                   .previous = act_.previous,
                   .positions = act_.previous ? step->positions : Tensor{},
                   .starts = starts});
}

void Gpt::transform(Stream& stream, const WeightSource& weights, Tensor tokens,
                    const CacheUse* cached) const {
  Tensor x;
  for (std::int64_t i = 0; i < config_.n_layer; ++i) {
    const BlockInput at = block_input(weights, tokens, act_.blocks, i, cached);
    block_forward(stream, at.block, at.from);
    x = at.block.act.x;
    if (config_.backout && i == config_.backout_layer() && act_.backout.data != x.data)
      stream.copy(act_.backout, x);
  }
  if (config_.backout)
    mix_norm(stream, {.y = act_.head.x,
                      .rstd = act_.head.rstd,
                      .x = x,
                      .z = act_.backout,
                      .beta = weights.use(params_.backout_lambda),
                      .sign = -1.0F});
  else
    rms_norm(stream, {.y = act_.head.x, .rstd = act_.head.rstd, .x = x});
}

// Views (n, c) as (b, t, c).
Tensor Gpt::in_rows(const Tensor& x) const { return x.view({size_.b, size_.t, config_.n_embd}); }

void Gpt::head(Stream& stream, const WeightSource& weights, Tensor targets, Tensor predictions,
               Tensor scale, const GradientSink* sink) const {
  const ProfileRange range(ProfileKind::kPhase, "losses");
  const Tensor w = weights.use(params_.lm_head);
  const Tensor flat = targets.view({targets.numel()});
  const std::int64_t rows = flat.numel();
  const std::int64_t chunk = act_.head.logits.shape[0];
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, rows);
    const Tensor logits = act_.head.logits.rows(0, end - begin);
    const Tensor x = act_.head.x.rows(begin, end);
    gemm(stream, {.d = logits, .c = {}, .a = x, .b = w, .transpose_b = true});
    // Before the loss, which may overwrite the logits. The soft-cap is monotonic, so it does not
    // change the order.
    if (predictions)
      argmax(stream, {.y = predictions.rows(begin, end), .x = logits, .vocab = config_.vocab_size});
    cross_entropy(stream, {.losses = act_.head.losses.rows(begin, end),
                           .logits = logits,
                           .targets = flat.rows(begin, end),
                           .vocab = config_.vocab_size,
                           .softcap = config_.softcap,
                           .gradient_scale = scale});
    if (sink == nullptr) continue;
    gemm(stream, {.d = act_.gradients.dnormed.rows(begin, end), .c = {}, .a = logits, .b = w});
    // Last, because reducing an announced gradient may reuse the memory of the logits.
    const bool last = end == rows;
    weight_gradient(stream, params_.lm_head, logits, x,
                    {.gradients = sink->gradients,
                     .accumulate = sink->accumulate || begin > 0,
                     .before_write = sink->before_write,
                     .ready = last ? sink->ready : nullptr});
  }
}

void Gpt::losses(Stream& stream, const WeightSource& weights, Tensor targets,
                 Tensor predictions) const {
  head(stream, weights, targets, predictions, {}, nullptr);
}

void Gpt::losses_and_backward(Stream& stream, const WeightSource& weights, Tensor tokens,
                              Tensor targets, Tensor scale, const GradientSink& sink) const {
  const GradientActivations& flow = act_.gradients;
  head(stream, weights, targets, {}, scale, &sink);
  if (sink.after_losses) sink.after_losses();
  const ProfileRange range(ProfileKind::kPhase, "backward");
  group_tokens(stream, {.groups = act_.token_groups,
                        .tokens = tokens.view({tokens.numel()}),
                        .vocab = config_.padded_vocab()});
  const Tensor y = act_.head.x, rstd = act_.head.rstd;
  if (config_.backout) {
    mix_norm_backward(stream, {.dx = flow.dx,
                               .dz = flow.dbackout,
                               .dy = flow.dnormed,
                               .y = y,
                               .rstd = rstd,
                               .z = act_.backout,
                               .beta = weights.use(params_.backout_lambda),
                               .dbeta = sink.target(params_.backout_lambda),
                               .sign = -1.0F,
                               .accumulate = sink.accumulate});
    sink.announce(params_.backout_lambda);
  } else {
    rms_norm_backward(
        stream, {.dx = flow.dx, .dy = flow.dnormed, .y = y, .rstd = rstd, .accumulate = false});
  }
  for (std::int64_t i = config_.n_layer - 1; i >= 0; --i) {
    if (config_.backout && i == config_.backout_layer())
      add(stream, {.y = flow.dx, .x = flow.dbackout});
    const BlockInput at = block_input(weights, tokens, act_.backward_blocks, i);
    block_recompute(stream, at.block, at.from, size_.recompute.of(i));
    block_backward(stream, at.block, at.from, flow, sink);
  }
  if (config_.x0_lambdas) sink.announce(params_.x0_lambdas);
  if (config_.resid_lambdas) sink.announce(params_.resid_lambdas);
  embedding_gradients(stream, weights, tokens, sink);
}

// Computed from the gradients of x0, both as the input of the first block and as mixed in
// by later blocks.
void Gpt::embedding_gradients(Stream& stream, const WeightSource& weights, Tensor tokens,
                              const GradientSink& sink) const {
  const GradientActivations& flow = act_.gradients;
  Tensor dx = flow.dx;
  if (config_.x0_lambdas) add(stream, {.y = dx, .x = flow.dx0});
  if (config_.smear) {
    smear_backward(stream, {.dx = in_rows(flow.dnormed),
                            .dweight = sink.target(params_.smear_gate),
                            .dlambda = sink.target(params_.smear_lambda),
                            .dy = in_rows(dx),
                            .x = in_rows(act_.embedded),
                            .gates = act_.smear_gates,
                            .weight = weights.use(params_.smear_gate),
                            .lambda = weights.use(params_.smear_lambda),
                            .accumulate = sink.accumulate});
    sink.announce(params_.smear_lambda);
    sink.announce(params_.smear_gate);
    dx = flow.dnormed;
  }
  rms_norm_backward(
      stream, {.dx = dx, .dy = dx, .y = act_.embedded, .rstd = act_.rstd0, .accumulate = false});
  embedding_backward(stream, {.dtable = sink.target(params_.wte),
                              .dy = dx,
                              .tokens = tokens.view({tokens.numel()}),
                              .groups = act_.token_groups,
                              .accumulate = sink.accumulate});
  sink.announce(params_.wte);
}

Tensor Gpt::logits(Stream& stream, const WeightSource& weights, std::int64_t begin,
                   std::int64_t end) const {
  MUO_CHECK(size_.logits, "logits() needs a Gpt with Size::logits");
  const Tensor out = act_.head.scores.rows(0, end - begin);
  gemm(stream, {.d = out,
                .c = {},
                .a = act_.head.x.rows(begin, end),
                .b = weights.use(params_.lm_head),
                .transpose_b = true,
                .few_rows = size_.decode || end - begin == 1});
  soft_cap(stream, {.logits = out, .softcap = config_.softcap});
  return out;
}

RotaryTables make_rotary_tables(const GptConfig& config, std::int64_t t, Arena& arena) {
  const auto make = [&](const char* name) {
    return arena.tensor({.name = name,
                         .shape = {t, config.head_dim() / 2},
                         .dtype = config.dtype,
                         .category = MemoryCategory::kWeights,
                         .lifespan = Lifespan::kRun});
  };
  return {.cos = make("rotary.cos"), .sin = make("rotary.sin")};
}

void fill_rotary_tables(Stream& stream, const GptConfig& config, const RotaryTables& tables) {
  rotary_table(stream, {.cos = tables.cos, .sin = tables.sin, .base = config.rope_base});
}

}  // namespace muo::model
