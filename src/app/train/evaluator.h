#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/token_data.h"
#include "graphs/eval_graph.h"

namespace muo {

struct EvalResult {
  double loss = 0;  // nats per token
  double bpb = -1;  // bits per byte of text; below zero: the tokens' bytes are unknown
};

// Rows of seq_len targets, the last perhaps short, that `data` has.
std::int64_t evaluation_rows(const TokenData& data, std::int64_t seq_len);

// Evaluates a fixed set of rows of the held-out data, the same for every world: rows of seq_len
// targets that do not overlap, spread evenly if they are fewer than all. The last row may be short.
class Evaluator {
 public:
  // rows: at most so many; 0: all. Allocates on the rank's device.
  Evaluator(RankContext& rank, EvalGraph& graph, const TokenData& data, std::int64_t batch,
            std::int64_t seq_len, std::int64_t rows);
  // Every rank calls it; all get the same result.
  EvalResult run();

 private:
  // Fills the batch with the set's rows from `first` on, behind its end with ignored targets.
  void fill(std::int64_t first);

  RankContext& rank_;
  EvalGraph& graph_;
  const TokenData& data_;
  std::int64_t batch_, seq_len_;
  std::int64_t all_rows_, rows_;
  std::unique_ptr<Buffer> memory_;
  Tensor inputs_, targets_;        // (batch, seq_len) int32, pinned
  std::vector<std::int32_t> row_;  // seq_len + 1
};

}  // namespace muo
