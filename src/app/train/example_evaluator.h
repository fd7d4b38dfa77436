#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "app/infer/inference.h"
#include "data/examples/token_task.h"
#include "runtime/device_group.h"

namespace muo::app {

// The shapes of the passes that read the tasks' rows: lengths of 64, 128 and so on up to
// `row_tokens`, those that there are rows for, and of each as many rows as make `pass_tokens`
// tokens, or `device_rows` if given, but no more than a task has. They do not depend on the number
// of devices, so neither do the numbers.
std::vector<PassShape> plan_passes(std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                   std::int64_t pass_tokens,
                                   std::optional<std::int64_t> device_rows);

// The same for `group`, with most_pass_tokens() or less, where memory of GPUs is short;
// config.head_chunk_bytes as fit_eval_batch() sets it.
std::vector<PassShape> fit_passes(model::GptConfig& config, const std::vector<ParamSpec>& params,
                                  std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                  std::optional<std::int64_t> device_rows,
                                  const GroupOptions& group);

// Runs a rank's model on the rows of tasks. Passes are dealt over the ranks; which rows a pass has
// does not depend on how many there are.
class ExampleEvaluator {
 public:
  // `passes` are those of `state`. Allocates on the rank's device. All given must outlive it.
  ExampleEvaluator(RankContext& rank, InferenceState& state, std::span<const PassShape> passes);

  // Every rank calls it. scores[i] <- of task.rows[i], those of this rank's passes: all ranks may
  // be given the same memory. `progress` is told how many rows the ranks have done.
  void run(const data::TokenTask& task, std::span<data::RowScore> scores,
           const std::function<void(std::int64_t rows)>& progress = {});

 private:
  // Fills inputs and targets with rows, behind their end with ignored targets.
  void fill(const data::TokenTask& task, std::span<const std::size_t> rows, const PassShape& shape);
  [[nodiscard]] Tensor pinned(int which, DType dtype, const PassShape& shape) const;

  RankContext& rank_;
  InferenceState& state_;
  std::span<const PassShape> passes_;
  std::int64_t slot_ = 0;           // bytes of each of the tensors below
  std::unique_ptr<Buffer> memory_;  // pinned: inputs, targets, losses, predictions
  std::vector<std::int32_t> tokens_;
};

}  // namespace muo::app
