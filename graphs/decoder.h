#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graphs/pass_weights.h"
#include "model/gpt.h"
#include "model/kv_cache.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/pinned_tensor.h"

namespace muo::graphs {

// Next-token logits of a few rows at once, from keys and values that a cache keeps. A row begins
// with a pass over its whole context, padded to one of a few captured lengths (causal attention
// never looks at the padding behind); every further token is one replay of a captured step, in
// which all rows take part. A row that is full begins again with the last half of its context. Used
// by one rank alone or, where weights are sharded, by all ranks with the same tokens.
class Decoder {
 public:
  static constexpr std::int64_t kMostRows = 16;  // whose logits exist at once
  static constexpr std::int32_t kNoToken = -1;

  // `rows` rows of up to config.seq_len tokens. Everything given must outlive this.
  Decoder(RankContext& rank, const model::GptConfig& config, const model::RotaryTables& rotary,
          PassWeights weights, std::int64_t rows, Arena& arena);

  void warm_up();  // every call of a capture once, eagerly
  void capture();
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(contexts_.size()); }

  // Row `row` begins anew with `context`, of which it keeps the last seq_len tokens. out
  // (vocab_size) <- soft-capped logits of the token after it. Waits.
  void begin(std::int64_t row, std::span<const std::int32_t> context, std::span<float> out);
  // Row `to` becomes what row `from` is, whose next logits are the same.
  void copy_row(std::int64_t from, std::int64_t to);
  // Appends tokens[i] to row i, which has begun, unless it is kNoToken; out (rows, vocab_size) <-
  // the logits after it, of rows that got one. Waits. On the host what a row gets does not depend
  // on the other rows, nor on how many there are.
  void step(std::span<const std::int32_t> tokens, std::span<float> out);

  [[nodiscard]] std::vector<const GraphTrace*> traces() const;

 private:
  struct Length {
    std::int64_t t = 0;
    Tensor tokens;  // (1, t) int32
    std::unique_ptr<model::Gpt> gpt;
    std::unique_ptr<Graph> graph;
  };
  void enqueue(const Length& length);
  void enqueue_step();
  template <class Enqueue>
  void run(const std::unique_ptr<Graph>& graph, const Enqueue& enqueue);
  void copy_logits(std::int64_t row, Tensor logits);
  [[nodiscard]] std::span<const float> logits_read(std::int64_t row) const;

  RankContext& rank_;
  const model::GptConfig& config_;
  PassWeights weights_;
  model::KvCache cache_;
  PinnedTensor staged_slot_, staged_context_, staged_inputs_;  // as their copies on the device
  PinnedTensor read_logits_;                                   // (rows, vocab_size) fp32
  Tensor slot_;                                                // (1) int32: the row that begins
  std::vector<Length> lengths_;                                // ascending
  Tensor inputs_;  // (4, rows) int32: as Gpt::Step has them
  model::Gpt step_;
  Tensor step_logits_;  // (rows, padded vocab) fp32
  std::unique_ptr<Graph> step_graph_;
  std::vector<std::vector<std::int32_t>> contexts_;  // of each row, all in the cache
};

}  // namespace muo::graphs
