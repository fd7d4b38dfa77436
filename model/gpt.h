#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "model/block.h"

namespace muo::model {

// Passes of a batch of (b, t) tokens through the model, with activations of its own. It owns no
// weights; they are passed to each call, by parameter index. All functions only enqueue; the
// caller synchronises.
class Gpt {
 public:
  using Size = Activations::Size;
  // `prefix` names the activations in the memory plan. `config` and `rotary` must
  // outlive this object.
  Gpt(const GptConfig& config, const Size& size, const RotaryTables& rotary,
      const std::string& prefix, Arena& arena);

  // Embedding, blocks and final norm. tokens (b, t) int32.
  void forward(Stream& stream, const WeightSource& weights, Tensor tokens) const;

  // Like forward(). Also writes the keys and values of row i to positions 0 to t - 1 of row
  // slots[i] of the cache. slots (b) int32.
  void prefill(Stream& stream, const WeightSource& weights, Tensor tokens, const KvCache& cache,
               Tensor slots) const;

  // Requires Size::decode. The forward pass for one position of each row, whose keys and values are
  // appended to the row in the cache. All tensors are (b) int32: the token; the previous token
  // (ignored at position 0); the position, which is below seq_len, and before which all positions
  // are in the cache; and, if a token begins documents, the position where the row's document
  // begins, as in document_starts().
  struct Step {
    Tensor tokens, previous, positions;
    Tensor starts = {};
  };
  void decode(Stream& stream, const WeightSource& weights, const Step& step,
              const KvCache& cache) const;

  // Call after forward(). Computes row_losses() of the whole batch. targets (b, t) int32, -1:
  // ignored. If given, predictions (b t) int32 <- the most likely token of each position; the first
  // one in case of a tie.
  void losses(Stream& stream, const WeightSource& weights, Tensor targets,
              Tensor predictions = {}) const;

  // Call after forward(). Computes losses, then all gradients of scale * sum of losses; scale is
  // (1) fp32.
  void losses_and_backward(Stream& stream, const WeightSource& weights, Tensor tokens,
                           Tensor targets, Tensor scale, const GradientSink& sink) const;

  // Requires Size::logits; call after forward(), prefill() or decode(). Returns soft-capped logits,
  // fp32, of rows [begin, end) of the batch, (end - begin, padded vocab), for at most
  // head_chunk_rows() rows. The tensor is valid until the next call.
  Tensor logits(Stream& stream, const WeightSource& weights, std::int64_t begin,
                std::int64_t end) const;

  // (b t) fp32, nats; filled by losses() and by losses_and_backward().
  [[nodiscard]] Tensor row_losses() const { return act_.head.losses; }

 private:
  // The context of a block, and its input, the residual stream.
  struct BlockInput {
    BlockContext block;
    Tensor from;
  };
  // act_.embedded <- the normed embedding; act_.x0 <- the same, mixed with that of the previous
  // tokens if smear is on.
  void embed(Stream& stream, const WeightSource& weights, Tensor tokens, const Step* step) const;
  // Blocks and final norm.
  void transform(Stream& stream, const WeightSource& weights, Tensor tokens,
                 const CacheUse* cached) const;
  // `blocks`: activations of the pass, forward or backward.
  [[nodiscard]] BlockInput block_input(const WeightSource& weights, Tensor tokens,
                                       std::span<const BlockActivations> blocks, std::int64_t layer,
                                       const CacheUse* cached = nullptr) const;
  [[nodiscard]] Tensor in_rows(const Tensor& x) const;
  void head(Stream& stream, const WeightSource& weights, Tensor targets, Tensor predictions,
            Tensor scale, const GradientSink* sink) const;
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

}  // namespace muo::model
