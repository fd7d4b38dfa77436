#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/held_out_rows.h"
#include "graphs/eval_graph.h"

namespace muo::trainer {

struct EvalResult {
  double loss = 0;  // nats per token
  double bpb = -1;  // bits per byte of text; negative: the tokens' bytes are unknown
  std::int64_t targets = 0;
};

// Evaluates a fixed set of rows of the held-out data that does not depend on the world size. If the
// set does not contain all rows, its rows are spread evenly over them.
class Evaluator {
 public:
  // Evaluates at most `max_rows` rows; 0: all. Allocates on the rank's device.
  Evaluator(RankContext& rank, graphs::EvalGraph& graph, data::HeldOutRows rows, std::int64_t batch,
            std::int64_t seq_len, std::int64_t max_rows);
  // Collective: every rank calls it, and all get the same result. Synchronizes.
  EvalResult run();
  [[nodiscard]] std::int64_t rows() const { return rows_; }

 private:
  // Fills the batch with the rows of the set from `first` on. Past the end of the set, the targets
  // are ignored tokens.
  void fill(std::int64_t first);

  RankContext& rank_;
  graphs::EvalGraph& graph_;
  data::HeldOutRows all_rows_;
  std::int64_t batch_, seq_len_;
  std::int64_t rows_;
  std::unique_ptr<Buffer> memory_;
  Tensor inputs_, targets_;        // (batch, seq_len) int32, pinned
  std::vector<std::int32_t> row_;  // seq_len + 1
};

}  // namespace muo::trainer
