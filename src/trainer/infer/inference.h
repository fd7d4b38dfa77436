#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "graphs/decoder.h"
#include "graphs/eval_graph.h"
#include "runtime/device_group.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {

// Shape of a pass: rows, and positions per row.
struct PassShape {
  std::int64_t rows = 0, seq_len = 0;
};

// Passes for which a rank's model without an optimizer is built: evaluation of `eval` rows,
// decoding of `sample` rows at once, or passes of the given shapes with results for each position
// (EvalOutput::kPositions).
struct InferenceRows {
  std::int64_t eval = 0, sample = 0;
  std::vector<PassShape> passes = {};
};

class InferenceState {
 public:
  // `config`, `params` and `rank` must outlive this object.
  InferenceState(RankContext& rank, const model::GptConfig& config,
                 const std::vector<ParamSpec>& params, const InferenceRows& rows, Arena& arena);

  void warm_up();  // see capture.h; synchronises
  void capture();
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;
  // Fills tables and weights.
  void load(const Checkpoint& checkpoint, const std::vector<std::int32_t>& bytes_of_token);

  model::RotaryTables rotary;
  std::vector<Tensor> weights;
  Tensor token_bytes;
  std::unique_ptr<graphs::EvalGraph> eval;
  std::unique_ptr<graphs::Decoder> decoder;
  std::vector<std::unique_ptr<graphs::EvalGraph>> passes;

 private:
  RankContext& rank_;
  const model::GptConfig& config_;
  const std::vector<ParamSpec>& params_;
};

// Memory plan of one rank's InferenceState.
MemoryPlan plan_inference_memory(const model::GptConfig& config,
                                 const std::vector<ParamSpec>& params, const InferenceRows& rows,
                                 int rank, int world);

// Throws InputError, beginning with `what` and ending with `advice`, if `plan` does not fit into
// the available memory of each device of the group.
void require_inference_memory(const MemoryPlan& plan, const GroupOptions& group,
                              std::string_view what, std::string_view advice);

// Returns the rows per pass and device for an evaluation of `rows` rows on `group`: as many tokens
// as a micro-step of training has (max_pass_tokens), but no more rows than there are. Sets
// config.head_chunk_bytes for the group. On GPUs both are reduced where memory is short.
std::int64_t fit_eval_batch(model::GptConfig& config, const std::vector<ParamSpec>& params,
                            std::int64_t rows, const GroupOptions& group);

}  // namespace muo::trainer
