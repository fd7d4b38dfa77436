#include "trainer/infer/inference.h"

#include <algorithm>
#include <string>

#include "base/text_table.h"
#include "graphs/capture.h"
#include "trainer/options/option_row.h"
#include "trainer/run/backend.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

std::vector<Tensor> make_weights(const std::vector<ParamSpec>& params, Arena& arena) {
  std::vector<Tensor> out;
  out.reserve(params.size());
  for (const ParamSpec& spec : params)
    out.push_back(arena.tensor({.name = spec.name,
                                .shape = spec.shape,
                                .dtype = spec.replica,
                                .category = MemoryCategory::kWeights,
                                .lifespan = Lifespan::kRun}));
  return out;
}

// Number of positions in the rotary tables: rows of a pass may be longer than those of training.
std::int64_t longest_row(const model::GptConfig& config, const InferenceRows& rows) {
  std::int64_t longest = config.seq_len;
  for (const PassShape& pass : rows.passes)
    longest = std::max(longest, pass.seq_len);
  return longest;
}

}  // namespace

InferenceState::InferenceState(RankContext& rank, const model::GptConfig& config,
                               const std::vector<ParamSpec>& params, const InferenceRows& rows,
                               Arena& arena)
    : rotary(model::make_rotary_tables(config, longest_row(config, rows), arena)),
      weights(make_weights(params, arena)),
      token_bytes(graphs::make_token_bytes(config, arena)),
      rank_(rank),
      config_(config),
      params_(params) {
  if (rows.eval > 0)
    eval = std::make_unique<graphs::EvalGraph>(rank, config, rows.eval, config.seq_len, rotary,
                                               graphs::PassWeights{weights}, token_bytes, arena);
  if (rows.sample > 0)
    decoder = std::make_unique<graphs::Decoder>(rank, config, rotary, graphs::PassWeights{weights},
                                                rows.sample, arena);
  for (const PassShape& pass : rows.passes)
    passes.push_back(std::make_unique<graphs::EvalGraph>(
        rank, config, pass.rows, pass.seq_len, rotary, graphs::PassWeights{weights}, token_bytes,
        arena, graphs::EvalOutput::kPositions, "eval_" + std::to_string(pass.seq_len) + "."));
}

void InferenceState::warm_up() {
  if (eval) eval->warm_up();
  if (decoder) decoder->warm_up();
  for (const auto& pass : passes)
    pass->warm_up();
  rank_.wait(rank_.compute);
}

void InferenceState::capture() {
  if (eval) eval->capture();
  if (decoder) decoder->capture();
  for (const auto& pass : passes)
    pass->capture();
}

std::vector<const GraphTrace*> InferenceState::traces() const {
  std::vector<const GraphTrace*> out;
  if (decoder) out = decoder->traces();
  if (eval) out.push_back(&eval->trace());
  for (const auto& pass : passes)
    out.push_back(&pass->trace());
  return out;
}

void InferenceState::load(const Checkpoint& checkpoint,
                          const std::vector<std::int32_t>& bytes_of_token) {
  model::fill_rotary_tables(rank_.compute, config_, rotary);
  graphs::fill_token_bytes(rank_.compute, token_bytes, bytes_of_token);
  checkpoint.load_weights(rank_.compute, params_, [this](std::size_t i) { return weights[i]; });
}

MemoryPlan plan_inference_memory(const model::GptConfig& config,
                                 const std::vector<ParamSpec>& params, const InferenceRows& rows,
                                 int rank, int world) {
  return graphs::traced_plan(rank, world, [&](RankContext& context, Arena& arena) {
    return std::make_unique<InferenceState>(context, config, params, rows, arena);
  });
}

void require_inference_memory(const MemoryPlan& plan, const GroupOptions& group,
                              std::string_view what, std::string_view advice) {
  const std::int64_t needed = plan.rank_bytes(group.world);
  const std::int64_t available = available_memory_per_rank(group);
  if (needed <= available) return;
  const std::string limit =
      group.plugin == nullptr ? process_memory(group, group.local().count).limit : "";
  throw input_error(
      "{}: needs {} on each of {} devices, but {} are available beside the program{}: {}", what,
      size_text(needed), group.world, size_text(available), limit, advice);
}

std::int64_t fit_eval_batch(model::GptConfig& config, const std::vector<ParamSpec>& params,
                            std::int64_t rows, const GroupOptions& group) {
  config.head_chunk_bytes = head_chunk_bytes(group);
  const std::int64_t rank_rows = (rows + group.world - 1) / group.world;
  std::int64_t batch =
      std::max<std::int64_t>(1, std::min(rank_rows, max_pass_tokens(group) / config.seq_len));
  if (group.plugin == nullptr) return batch;
  const std::int64_t memory = memory_to_plan_per_rank(group);
  const auto fits = [&] {
    return plan_inference_memory(config, params, {.eval = batch}, 0, group.world)
               .rank_bytes(group.world) <= memory;
  };
  while (batch > 1 && !fits())
    batch /= 2;
  if (!fits()) config.head_chunk_bytes = model::kHostHeadChunk;
  return batch;
}

}  // namespace muo::trainer
