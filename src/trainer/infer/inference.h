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

// Shape of a pass: number of rows and of positions per row.
struct PassShape {
  std::int64_t rows = 0, seq_len = 0;
};

// The passes for which a rank's model without an optimizer is built: evaluation of `eval` rows,
// decoding of `sample` rows at once, or passes of the given shapes that return results for each
// position (EvalOutput::kPositions).
struct InferenceRows {
  std::int64_t eval = 0, sample = 0;
  std::vector<PassShape> passes = {};
};

class InferenceState {
 public:
  // `config`, `params` and `rank` must outlive this object.
  InferenceState(RankContext& rank, const model::GptConfig& config,
                 const std::vector<ParamSpec>& params, const InferenceRows& rows, Arena& arena);

  void warm_up();  // see capture.h; synchronizes
  void capture();
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;
  // Loads the weights and fills the tables.
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

// Throws InputError if `plan` does not fit into the available memory of each device of the group.
// The message begins with `what` and ends with `advice`.
void require_inference_memory(const MemoryPlan& plan, const GroupOptions& group,
                              std::string_view what, std::string_view advice);

// Returns the rows per pass and device for an evaluation of `rows` rows on `group`: as many tokens
// as a micro-step of training has (max_pass_tokens), but at most `rows` rows. Sets
// config.head_chunk_bytes for the group. On GPUs, reduces both if memory is short.
std::int64_t fit_eval_batch(model::GptConfig& config, const std::vector<ParamSpec>& params,
                            std::int64_t rows, const GroupOptions& group);

}  // namespace muo::trainer
