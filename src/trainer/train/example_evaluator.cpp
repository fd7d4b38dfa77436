#include "trainer/train/example_evaluator.h"

#include <algorithm>

#include "trainer/run/backend.h"

namespace muo::trainer {
namespace {

// Shorter rows would save little.
constexpr std::int64_t kShortest = 64;

// Number of positions that a pass over this row reads: the last token is only a target.
std::int64_t positions_of(const data::ExampleRow& row) {
  return std::max<std::int64_t>(1, row.length() - 1);
}

// Possible lengths of passes, ascending.
std::vector<std::int64_t> lengths_up_to(std::int64_t row_tokens) {
  std::vector<std::int64_t> out;
  for (std::int64_t length = kShortest; length < row_tokens; length *= 2)
    out.push_back(length);
  out.push_back(row_tokens);
  return out;
}

// For each length, the rows for which it is the shortest sufficient one.
std::vector<std::vector<std::size_t>> by_length(const data::TokenTask& task,
                                                const std::vector<std::int64_t>& lengths) {
  std::vector<std::vector<std::size_t>> out(lengths.size());
  for (std::size_t i = 0; i < task.rows.size(); ++i) {
    const auto fitting = std::ranges::lower_bound(lengths, positions_of(task.rows[i]));
    MUO_CHECK(fitting != lengths.end(), "a row of ", task.rows[i].length(), " tokens");
    out[static_cast<std::size_t>(fitting - lengths.begin())].push_back(i);
  }
  return out;
}

enum : int { kInputs, kTargets, kLosses, kPredictions, kTensors };

}  // namespace

std::vector<PassShape> plan_passes(std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                   std::int64_t pass_tokens,
                                   std::optional<std::int64_t> device_rows) {
  const std::vector<std::int64_t> lengths = lengths_up_to(row_tokens);
  std::vector<std::int64_t> max_rows(lengths.size(), 0);  // the maximum over all tasks
  for (const data::TokenTask& task : tasks) {
    const auto rows = by_length(task, lengths);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      max_rows[i] = std::max(max_rows[i], std::ssize(rows[i]));
  }
  std::vector<PassShape> out;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t wanted =
        device_rows.value_or(std::max<std::int64_t>(1, pass_tokens / lengths[i]));
    if (max_rows[i] == 0) continue;
    out.push_back({.rows = std::min(wanted, max_rows[i]), .seq_len = lengths[i]});
    model::check_pass(out.back().rows, lengths[i]);
  }
  return out;
}

std::vector<PassShape> fit_passes(model::GptConfig& config, const std::vector<ParamSpec>& params,
                                  std::span<const data::TokenTask> tasks, std::int64_t row_tokens,
                                  std::optional<std::int64_t> device_rows,
                                  const GroupOptions& group) {
  config.head_chunk_bytes = head_chunk_bytes(group);
  std::int64_t tokens = max_pass_tokens(group);
  std::vector<PassShape> passes = plan_passes(tasks, row_tokens, tokens, device_rows);
  if (group.plugin == nullptr) return passes;
  const std::int64_t memory = memory_to_plan_per_rank(group);
  const auto fits = [&] {
    return plan_inference_memory(config, params, {.passes = passes}, 0, group.world)
               .rank_bytes(group.world) <= memory;
  };
  while (!device_rows && tokens > row_tokens && !fits())
    passes = plan_passes(tasks, row_tokens, tokens /= 2, device_rows);
  if (!fits()) config.head_chunk_bytes = model::kHostHeadChunk;
  return passes;
}

ExampleEvaluator::ExampleEvaluator(RankContext& rank, InferenceState& state,
                                   std::span<const PassShape> passes)
    : rank_(rank), state_(state), passes_(passes) {
  MUO_CHECK(state.passes.size() == passes.size());
  for (const PassShape& shape : passes)
    slot_ = std::max(slot_, shape.rows * shape.seq_len * std::int64_t{sizeof(std::int32_t)});
  memory_ = rank.device.allocate_pinned(kTensors * slot_, "evaluation batch");
}

Tensor ExampleEvaluator::pinned(int which, DType dtype, const PassShape& shape) const {
  return {.data = memory_->data() + which * slot_,
          .shape = {shape.rows, shape.seq_len},
          .dtype = dtype,
          .device = rank_.rank};
}

void ExampleEvaluator::fill(const data::TokenTask& task, std::span<const std::size_t> rows,
                            const PassShape& shape) {
  const Tensor inputs = pinned(kInputs, DType::kI32, shape);
  const Tensor targets = pinned(kTargets, DType::kI32, shape);
  std::fill_n(inputs.as<std::int32_t>(), inputs.numel(), 0);
  std::fill_n(targets.as<std::int32_t>(), targets.numel(), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const data::ExampleRow& row = task.rows[rows[i]];
    tokens_.clear();
    task.read(row, tokens_);
    const auto at = static_cast<std::int64_t>(i) * shape.seq_len;
    std::copy_n(tokens_.begin(), positions_of(row), inputs.as<std::int32_t>() + at);
    std::copy_n(tokens_.begin() + row.scored, row.scored_tokens(),
                targets.as<std::int32_t>() + at + row.scored - 1);
  }
}

void ExampleEvaluator::run(const data::TokenTask& task, std::span<data::RowScore> scores,
                           const std::function<void(std::int64_t rows)>& progress) {
  std::vector<std::int64_t> lengths;
  for (const PassShape& shape : passes_)
    lengths.push_back(shape.seq_len);
  const auto rows_of = by_length(task, lengths);
  std::int64_t done = 0;
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    const PassShape& shape = passes_[k];
    const std::span<const std::size_t> all = rows_of[k];
    const auto batch = static_cast<std::size_t>(shape.rows);
    const auto world = static_cast<std::size_t>(rank_.world);
    const Tensor losses = pinned(kLosses, DType::kF32, shape);
    const Tensor predictions = pinned(kPredictions, DType::kI32, shape);
    // All ranks make the same number of passes, because gathering weights is collective.
    for (std::size_t first = 0; first < all.size(); first += batch * world) {
      const std::size_t begin =
          std::min(first + static_cast<std::size_t>(rank_.rank) * batch, all.size());
      const auto mine = all.subspan(begin, std::min(batch, all.size() - begin));
      fill(task, mine, shape);
      graphs::EvalGraph& graph = *state_.passes[k];
      graph.run(pinned(kInputs, DType::kI32, shape), pinned(kTargets, DType::kI32, shape));
      graph.read(losses, predictions);
      rank_.wait(rank_.compute);
      const auto* targets = pinned(kTargets, DType::kI32, shape).as<std::int32_t>();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const data::ExampleRow& row = task.rows[mine[i]];
        data::RowScore score;
        for (std::int64_t j = row.scored - 1; j < row.length() - 1; ++j) {
          const std::int64_t at = static_cast<std::int64_t>(i) * shape.seq_len + j;
          score.nats += double{losses.as<float>()[at]};
          score.all_predicted =
              score.all_predicted && predictions.as<std::int32_t>()[at] == targets[at];
        }
        scores[mine[i]] = score;
      }
      done += std::ssize(all.subspan(first, std::min(batch * world, all.size() - first)));
      if (progress) progress(done);
    }
  }
}

}  // namespace muo::trainer
