#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graphs/pass_weights.h"
#include "model/gpt.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/pinned_tensor.h"

namespace muo::graphs {

// Sums of an evaluation, over all ranks.
struct LossTotals {
  double nats = 0;       // over all targets
  double targets = 0;    // number of targets
  double text_nats = 0;  // over targets that represent text
  double text_bytes = 0;
};

// (vocab) int32 in device memory, for LossTotalsArgs::bytes: bytes of text per token. Filling
// waits; tokens beyond `values` count 0.
Tensor make_token_bytes(const model::GptConfig& config, Arena& arena);
void fill_token_bytes(Stream& stream, Tensor token_bytes, std::span<const std::int32_t> values);

// Results kept of each batch: sums over all of it, or each position's loss and prediction.
enum class EvalOutput : std::uint8_t { kTotals, kPositions };

// A rank's forward pass and loss on one batch of (batch, seq_len), captured once and replayed.
class EvalGraph {
 public:
  // All arguments must outlive this object. `name` is the prefix of its tensors in the memory plan.
  EvalGraph(RankContext& rank, const model::GptConfig& config, std::int64_t batch,
            std::int64_t seq_len, const model::RotaryTables& rotary, PassWeights weights,
            Tensor token_bytes, Arena& arena, EvalOutput output = EvalOutput::kTotals,
            const std::string& name = "eval.");

  void warm_up();  // runs all captured calls once, eagerly
  void capture();
  void reset();  // enqueues totals <- 0; requires EvalOutput::kTotals
  // Enqueues. inputs, targets: (batch, seq_len) int32 in pinned memory; targets of -1 are ignored.
  void run(Tensor inputs, Tensor targets);
  // Returns the sums over ranks; waits. Every rank calls it. Requires EvalOutput::kTotals.
  [[nodiscard]] LossTotals finish();
  // Enqueues copies of the last run's results to pinned memory, both (batch, seq_len): losses fp32,
  // nats, 0 at ignored targets; predictions int32, the most likely tokens. Requires
  // EvalOutput::kPositions.
  void read(Tensor losses, Tensor predictions);

  // True if all ranks must call run() together.
  [[nodiscard]] bool has_collectives() const { return weights_.gathers != nullptr; }

  [[nodiscard]] const GraphTrace& trace() const { return graph_->trace(); }

 private:
  void enqueue();

  RankContext& rank_;
  PassWeights weights_;
  Tensor token_bytes_, inputs_, targets_;
  Tensor totals_;                // (4) fp64, or none
  PinnedTensor read_totals_;     // (4) fp64
  Tensor losses_, predictions_;  // (batch seq_len) fp32 and int32, or none
  model::Gpt gpt_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace muo::graphs
