#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "model/block.h"

namespace muo {

// One batch's way through the model: (b, t) tokens, with its own activations. It owns no weights:
// they are given per call, by parameter index. Enqueues only; the caller synchronises.
class Gpt {
 public:
  using Size = Activations::Size;
  // `prefix` names the activations in the memory plan. `config` and `rotary` must outlive it.
  Gpt(const GptConfig& config, const Size& size, const RotaryTables& rotary,
      const std::string& prefix, Arena& arena);

  // Embedding, blocks and final norm. tokens (b, t) int32.
  void forward(Stream& stream, const WeightSource& weights, Tensor tokens) const;

  // After forward: row_losses() of the whole batch. targets (b, t) int32, -1: ignored.
  void losses(Stream& stream, const WeightSource& weights, Tensor targets) const;

  // After forward: losses, then every gradient of `scale` * sum of losses.
  void losses_and_backward(Stream& stream, const WeightSource& weights, Tensor tokens,
                           Tensor targets, float scale, const GradientSink& sink) const;

  // Where Size::logits, after forward: soft-capped logits, fp32, of rows [begin, end) of the batch,
  // (end - begin, padded vocab), at most head_chunk_rows of them; the tensor is valid until the
  // next call.
  Tensor logits(Stream& stream, const WeightSource& weights, std::int64_t begin,
                std::int64_t end) const;

  // (b t) fp32, nats: filled by losses and by losses_and_backward.
  [[nodiscard]] Tensor row_losses() const { return act_.head.losses; }

 private:
  // What a block is told of its layer, and the residual stream that it takes in.
  struct BlockInput {
    BlockContext block;
    Tensor from;
  };
  // `blocks`: those of the pass, forward or backward.
  [[nodiscard]] BlockInput block_input(const WeightSource& weights, Tensor tokens,
                                       std::span<const BlockActivations> blocks,
                                       std::int64_t layer) const;
  [[nodiscard]] Tensor in_rows(const Tensor& x) const;
  void head(Stream& stream, const WeightSource& weights, Tensor targets, float scale,
            const GradientSink* sink) const;
  void embedding_gradients(Stream& stream, const WeightSource& weights, Tensor tokens,
                           const GradientSink& sink) const;

  const GptConfig& config_;
  Size size_;
  GptParams params_;
  const RotaryTables& rotary_;
  Activations act_;
};

// Makes and fills the tables for positions [0, t).
RotaryTables make_rotary_tables(const GptConfig& config, std::int64_t t, Arena& arena);
void fill_rotary_tables(Stream& stream, const GptConfig& config, const RotaryTables& tables);

}  // namespace muo
