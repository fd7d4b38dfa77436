#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graphs/pass_weights.h"
#include "model/gpt.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"

namespace muo {

// Next-token logits by running the model over the whole context, padded to one of a few captured
// lengths (causal attention never looks at the padding behind). Used by one rank alone or, where
// weights are sharded, by all ranks with the same contexts.
class Decoder {
 public:
  // Contexts of up to config.seq_len tokens. Everything given must outlive this.
  Decoder(RankContext& rank, const GptConfig& config, const RotaryTables& rotary,
          PassWeights weights, Arena& arena);

  void warm_up();  // every call of a capture once, eagerly
  void capture();
  // out (vocab_size) <- soft-capped logits of the token after `context` (1 to seq_len tokens).
  // Waits.
  void next_logits(std::span<const std::int32_t> context, std::span<float> out);

  [[nodiscard]] std::vector<const GraphTrace*> traces() const;

 private:
  struct Length {
    std::int64_t t = 0;
    Tensor tokens;  // (1, t) int32
    std::unique_ptr<Gpt> gpt;
    std::unique_ptr<Graph> graph;
  };
  void enqueue(const Length& length);

  RankContext& rank_;
  const GptConfig& config_;
  PassWeights weights_;
  std::vector<Length> lengths_;  // ascending
};

}  // namespace muo
