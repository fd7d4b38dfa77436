#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "app/run/token_count.h"
#include "data/token_data.h"
#include "graphs/run_setup.h"
#include "optim/optimizer_options.h"
#include "optim/sharding_plan.h"
#include "runtime/device_group.h"

namespace muo::app {

class Checkpoint;

// How much a run had trained, from its start on, when it wrote a checkpoint.
struct TrainedSoFar {
  std::int64_t steps = 0, rows = 0, tokens = 0;
};
TrainedSoFar trained_by(const Checkpoint& checkpoint);

// D and B of nanochat's scaling rules: scaling.h.
struct ScalingTargets {
  std::int64_t tokens = 1;        // D: the whole part of ratio x scaling parameters, at least 1
  double reference_tokens = 1;    // D of depth 12 with the same vocabulary and extras
  std::int64_t batch_tokens = 1;  // B, a power of two
};

// A run with every decision made.
struct RunConfig : graphs::RunSetup {
  // As asked, and, of what is automatic, what has no other member here. resolved() has all.
  TrainOptions options;
  ScalingTargets targets;
  optim::RateScales scales;
  GroupOptions group;
  Tune tune = Tune::kOff;
  TrainedSoFar trained;  // by the run that this one goes on with; go_on_from() sets it
  std::int64_t profile_begin = -1, profile_end = -1;  // steps for a profiler; -1: none
  std::int64_t parameters = 0;                        // elements, all of them
  std::int64_t scaling_parameters = 0;  // matrices and lm_head: what data ratios count
  std::int64_t train_tokens = 0;        // of the training data, less what is cropped; 0: unknown
  double packing_share = 1;             // of the training data's tokens that packing trains on
  double flops_per_token = 0;
  double bytes_per_token = 0;      // of the training text, for bits per byte; 0: unknown
  std::vector<std::string> notes;  // every automatic decision, one line each; see scaling_notes()

  [[nodiscard]] int world() const { return group.world; }
  [[nodiscard]] int ranks_here() const { return group.local().count; }  // of this process
  [[nodiscard]] std::int64_t rows_per_step() const {
    return group.world * step.batch * step.accumulation;
  }
  [[nodiscard]] std::int64_t tokens_per_step() const { return rows_per_step() * model.seq_len; }
  [[nodiscard]] std::int64_t iterations() const { return hyper.iterations; }
  // From the start of the run on, until so many `steps` are done, at least trained.steps.
  [[nodiscard]] std::int64_t rows_before(std::int64_t steps) const {
    return trained.rows + (steps - trained.steps) * rows_per_step();
  }
  [[nodiscard]] TokenCount token_count() const {
    return {.first_step = trained.steps, .trained = trained.tokens, .per_step = tokens_per_step()};
  }
  // Tokens of the steps that are left, and of the whole run: may be too many for an integer.
  [[nodiscard]] double tokens_left() const {
    return static_cast<double>(iterations() - trained.steps) *
           static_cast<double>(tokens_per_step());
  }
  [[nodiscard]] double horizon_tokens() const {
    return static_cast<double>(trained.tokens) + tokens_left();
  }
  // Rows of an evaluation, at most; the same for every number of devices.
  [[nodiscard]] std::int64_t eval_rows() const {
    return (options.evaluation.tokens.value() + model.seq_len - 1) / model.seq_len;
  }
  [[nodiscard]] optim::NumberFormats formats() const;
  // fit_memory() may make it smaller.
  [[nodiscard]] bool batch_is_automatic() const { return !options.batch.device_rows; }
  [[nodiscard]] TrainOptions resolved() const;  // what config.toml holds
  // Gradients are bf16, and further micro-steps would add to them.
  [[nodiscard]] bool needs_one_micro_step() const;
};

// Whether what happens every so many steps (-1 or nothing: never) happens after `step`.
inline bool is_due(std::optional<std::int64_t> every, std::int64_t step) {
  return every.value_or(-1) > 0 && step % *every == 0;
}
// Whether a checkpoint is due by --save-minutes if the last one is `age` old.
bool is_due(const SaveOptions& save, std::chrono::duration<double> age);

// Fills what is automatic and checks the rest: automatic sizes are rounded to the nearest feasible
// ones and noted, explicit ones that cannot work are refused with the nearest feasible values
// (InputError). A corpus without `train` (of `plan`) counts for its vocabulary only.
RunConfig resolve(const TrainOptions& options, const data::Corpus& corpus);

// The run goes on from a checkpoint: what is counted from the start on, automatic steps included,
// counts what was trained.
void go_on_from(RunConfig& run, const TrainedSoFar& trained);

// What is sharded: automatic is what the strategy does, the optimizer's state or nothing.
optim::Shard shard_of(const ShardingOptions& options);

// Gives the run another strategy, which shards what the run does or, beside `ddp`, the optimizer's
// state; false if it cannot shard as much.
bool use_strategy(RunConfig& config, const optim::Strategy& strategy);

// Who updates what in the run; `params` are gpt_parameters(config.model).
optim::ShardingPlan make_sharding_plan(const RunConfig& config, std::span<const ParamSpec> params);

// How a device computes attention of the run's training steps, a line for each window: forward and
// gradients. None on the host, which has no choice. The first call may take seconds, as it makes
// plans. Throws InputError if --attention cannot be had.
std::vector<std::string> attention_notes(const RunConfig& config);

}  // namespace muo::app
