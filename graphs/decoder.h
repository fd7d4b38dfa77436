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

// Next-token logits of several rows at once, with a cache of keys and values. A row begins with a
// pass over its whole context, padded to one of a few captured lengths (causal attention ignores
// the padding at the end); each further token is one replay of a captured step, in which all rows
// take part. A full row begins again with the last half of its context. Used by one rank alone or,
// if weights are sharded, by all ranks with the same tokens.
class Decoder {
 public:
  static constexpr std::int64_t kMaxRows = 16;  // limit of logits in memory
  static constexpr std::int32_t kNoToken = -1;

  // `rows` rows of up to config.seq_len tokens. All arguments must outlive this object.
  Decoder(RankContext& rank, const model::GptConfig& config, const model::RotaryTables& rotary,
          PassWeights weights, std::int64_t rows, Arena& arena);

  void warm_up();  // runs all captured calls once, eagerly
  void capture();
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(contexts_.size()); }

  // Restarts row `row` with the last seq_len tokens of `context`. Returns when out (vocab_size)
  // contains the soft-capped logits of the next token.
  void begin(std::int64_t row, std::span<const std::int32_t> context, std::span<float> out);
  // Copies the state of row `from` to row `to`, so that both have the same next logits.
  void copy_row(std::int64_t from, std::int64_t to);
  // Appends tokens[i] to row i, which must have begun, unless it is kNoToken; out (rows,
  // vocab_size) <- the next logits of rows that got a token. Returns when they are there. On the
  // host a row's results do not depend on the other rows or their number.
  void step(std::span<const std::int32_t> tokens, std::span<float> out);

  [[nodiscard]] std::vector<Graph*> graphs() const;  // captured graphs
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
  // Pinned sources of the device's inputs.
  PinnedTensor staged_slot_, staged_context_, staged_inputs_;
  PinnedTensor read_logits_;     // (rows, vocab_size) fp32
  Tensor slot_;                  // (1) int32: row of begin()
  std::vector<Length> lengths_;  // ascending
  Tensor inputs_;                // (4, rows) int32: the fields of Gpt::Step
  model::Gpt step_;
  Tensor step_logits_;  // (rows, padded vocab) fp32
  std::unique_ptr<Graph> step_graph_;
  std::vector<std::vector<std::int32_t>> contexts_;  // by row; all of it is in the cache
};

}  // namespace muo::graphs
