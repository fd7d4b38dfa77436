#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "graphs/decoder.h"
#include "graphs/eval_graph.h"
#include "runtime/device_group.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {

// Rows of a pass, and positions of a row.
struct PassShape {
  std::int64_t rows = 0, seq_len = 0;
};

// What a rank's model without an optimizer is for: passes of `eval` rows, samples of `sample` rows
// at once, or passes of these shapes of which each position is read (EvalOutput::kPositions).
struct InferenceRows {
  std::int64_t eval = 0, sample = 0;
  std::vector<PassShape> passes = {};
};

class InferenceState {
 public:
  // `config`, `params` and `rank` must outlive it.
  InferenceState(RankContext& rank, const model::GptConfig& config,
                 const std::vector<ParamSpec>& params, const InferenceRows& rows, Arena& arena);

  void warm_up();  // see capture.h; waits
  void capture();
  [[nodiscard]] std::vector<const GraphTrace*> traces() const;
  // Fills the tables and the weights.
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

// What a rank of such a state takes.
MemoryPlan plan_inference_memory(const model::GptConfig& config,
                                 const std::vector<ParamSpec>& params, const InferenceRows& rows,
                                 int rank, int world);

// Throws InputError, which begins with `what` and ends with `advice`, if `plan` does not fit into
// what each device of the group has.
void require_inference_memory(const MemoryPlan& plan, const GroupOptions& group,
                              std::string_view what, std::string_view advice);

// For evaluation of `rows` rows on `group`: the rows of a pass on each device, as many tokens as a
// micro-step of training has (most_pass_tokens), but no more rows than there are. On GPUs with
// logits in chunks to match (config.head_chunk_bytes), and less of both where memory is short.
std::int64_t fit_eval_batch(model::GptConfig& config, const std::vector<ParamSpec>& params,
                            std::int64_t rows, const GroupOptions& group);

}  // namespace muo::app
