#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/examples/token_task.h"
#include "runtime/device_group.h"
#include "trainer/infer/inference.h"

namespace muo::trainer {

// Shapes of the passes over the tasks' rows: lengths of 64, 128 and so on up to `row_tokens`, as
// far as rows need them. A pass of each length has `device_rows` rows, or by default as many as
// make `pass_tokens` tokens, but no more than a task has. Neither shapes nor results depend on the
// number of devices.
std::vector<PassShape> plan_passes(std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                   std::int64_t pass_tokens,
                                   std::optional<std::int64_t> device_rows);

// The same for `group`, with max_pass_tokens() tokens, or fewer if these do not fit into the GPUs'
// memory. Sets config.head_chunk_bytes as fit_eval_batch() does.
std::vector<PassShape> fit_passes(model::GptConfig& config, const std::vector<ParamSpec>& params,
                                  std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                  std::optional<std::int64_t> device_rows,
                                  const GroupOptions& group);

// Runs a rank's model on the rows of tasks. The passes are distributed over the ranks; the rows of
// a pass do not depend on the number of ranks.
class ExampleEvaluator {
 public:
  // `passes` must be those of `state`. Allocates on the rank's device. The arguments must outlive
  // this object.
  ExampleEvaluator(RankContext& rank, InferenceState& state, std::span<const PassShape> passes);

  // Collective. Writes scores[i] for each task.rows[i] in this rank's passes; all ranks may share
  // the same memory. Calls progress(rows) with the number of rows that all ranks have done.
  // Synchronizes.
  void run(const data::TokenTask& task, std::span<data::RowScore> scores,
           const std::function<void(std::int64_t rows)>& progress = {});

 private:
  // Fills inputs and targets with `rows`. Past their end, the targets are ignored tokens.
  void fill(const data::TokenTask& task, std::span<const std::size_t> rows, const PassShape& shape);
  [[nodiscard]] Tensor pinned(int which, DType dtype, const PassShape& shape) const;

  RankContext& rank_;
  InferenceState& state_;
  std::span<const PassShape> passes_;
  std::int64_t slot_ = 0;           // bytes of each of the tensors below
  std::unique_ptr<Buffer> memory_;  // pinned: inputs, targets, losses, predictions
  std::vector<std::int32_t> tokens_;
};

}  // namespace muo::trainer
