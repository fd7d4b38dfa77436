#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "graphs/run_setup.h"
#include "optim/optimizer_options.h"
#include "optim/sharding_plan.h"
#include "runtime/device_group.h"
#include "trainer/options/options.h"
#include "trainer/run/pacing.h"
#include "trainer/run/token_count.h"

namespace muo::trainer {

class Checkpoint;

// Iterations of a run that ends only by its time budget.
inline constexpr std::int64_t kUnbounded = std::int64_t{1} << 40;

// Totals from the start of a run to a checkpoint.
struct TrainedSoFar {
  std::int64_t steps = 0, rows = 0, tokens = 0;
  BudgetClock clock = {};  // a budget of 0: trained without one
};
TrainedSoFar trained_by(const Checkpoint& checkpoint);

// D and B of nanochat's scaling rules: scaling.h.
struct ScalingTargets {
  std::int64_t tokens = 1;        // D: the whole part of ratio x scaling parameters, at least 1
  double reference_tokens = 1;    // D of depth 12 with the same vocabulary and extras
  std::int64_t batch_tokens = 1;  // B, a power of two
};

// A run for which every decision has been made.
struct RunConfig : graphs::RunSetup {
  // Options as given. An automatic one is filled in if no other member holds the decision;
  // resolved() fills in all.
  TrainOptions options;
  ScalingTargets targets;
  optim::RateScales scales;
  GroupOptions group;
  Tune tune = Tune::kOff;
  TrainedSoFar trained;  // totals of the checkpoint that this run resumes; set by continue_from()
  // The batches of a run in which they change; empty: tokens_per_step() at every step.
  std::vector<TokenCount::Stage> batches;
  std::vector<Pace> paces;  // of --positions-from; the last one is where the run ends
  std::int64_t profile_begin = -1, profile_end = -1;  // steps for a profiler; -1: none
  std::int64_t parameters = 0;                        // elements of all parameters
  std::int64_t scaling_parameters = 0;  // elements of matrices and lm_head, for data ratios
  std::int64_t train_tokens = 0;  // tokens of the training data, without cropped ones; 0: unknown
  double packing_share = 1;       // share of the training data's tokens that packing keeps
  double flops_per_token = 0;
  double bytes_per_token = 0;      // mean over the training text, for bits per byte; 0: unknown
  std::vector<std::string> notes;  // every automatic decision, one line each; see scaling_notes()

  [[nodiscard]] int world() const { return group.world; }
  [[nodiscard]] int ranks_here() const { return group.local().count; }  // of this process
  // Of the largest step.
  [[nodiscard]] std::int64_t rows_per_step() const {
    return group.world * step.batch * step.accumulation;
  }
  [[nodiscard]] std::int64_t tokens_per_step() const { return rows_per_step() * model.seq_len; }
  // The number of steps, or, with a time budget, its bound.
  [[nodiscard]] std::int64_t iterations() const { return hyper.iterations; }
  [[nodiscard]] bool is_bounded() const { return iterations() < kUnbounded; }
  // True if the run is complete once it has trained `done` steps, those of its checkpoint.
  [[nodiscard]] bool is_complete_at(std::int64_t done) const {
    return done >= iterations() || (options.batch.time_budget && hyper.pace.at(done) >= 1);
  }
  // Rows of the run's first `steps` steps; requires steps >= trained.steps.
  [[nodiscard]] std::int64_t rows_before(std::int64_t steps) const {
    return trained.rows + token_count().between(trained.steps, steps) / model.seq_len;
  }
  [[nodiscard]] TokenCount token_count() const {
    return {
        .first_step = trained.steps,
        .trained = trained.tokens,
        .stages = batches.empty() ? std::vector{TokenCount::Stage{0, tokens_per_step()}} : batches};
  }
  // "524288", or with several batches "32768 to 524288".
  [[nodiscard]] std::string batch_text() const;
  // Tokens of the remaining steps and of the whole run, which may exceed any integer type.
  [[nodiscard]] double tokens_left() const {
    return token_count().between<double>(trained.steps, iterations());
  }
  [[nodiscard]] double horizon_tokens() const {
    return static_cast<double>(trained.tokens) + tokens_left();
  }
  // Maximum number of rows of an evaluation, independent of the number of devices.
  [[nodiscard]] std::int64_t eval_rows() const {
    return (options.evaluation.tokens.value() + model.seq_len - 1) / model.seq_len;
  }
  [[nodiscard]] optim::NumberFormats formats() const;
  // True if fit_memory() may make the batch smaller.
  [[nodiscard]] bool batch_is_automatic() const { return !options.batch.device_rows; }
  [[nodiscard]] TrainOptions resolved() const;  // the contents of config.toml
  // True if gradients are bf16 and unsharded on each rank: further micro-steps would have to add to
  // them in bf16.
  [[nodiscard]] bool needs_one_micro_step() const;
  [[nodiscard]] bool reduces_every_micro_step() const;
  [[nodiscard]] graphs::MicroSteps form_of_micro_steps() const;
  // The step whose memory needs tracing: this one, with no more micro-steps than its graphs
  // distinguish. Further ones take time to trace, but no more memory.
  [[nodiscard]] std::int64_t traced_micro_steps() const;
};

// True if work done every `every` steps (-1 or empty: never) is due after `step`.
inline bool is_due(std::optional<std::int64_t> every, std::int64_t step) {
  return every.value_or(-1) > 0 && step % *every == 0;
}
// True if --save-minutes makes a checkpoint due when the last one is `age` old.
bool is_due(const SaveOptions& save, std::chrono::duration<double> age);

// Sets automatic options and checks the others. Automatic sizes are rounded to the nearest feasible
// ones and noted; explicit sizes that cannot work throw InputError with the nearest feasible
// values. A corpus without `train` (for `plan`) is used only for its vocabulary.
RunConfig resolve(const TrainOptions& options, const data::Corpus& corpus);

// Makes the run continue from a checkpoint: totals from the start of the run, and automatic numbers
// of steps, then include what was trained before.
void continue_from(RunConfig& run, const TrainedSoFar& trained);

// The state that is sharded. The default is the most that the strategy can shard, up to the
// optimizer's state.
optim::Shard shard_of(const ShardingOptions& options);

// The hyper-parameters of a step, whose rates depend on its batch; without the pace.
HyperParameters hyper_parameters_at(const RunConfig& run, std::int64_t step);

// Switches the run to another strategy, with the run's sharding or, for a strategy other than
// `ddp`, at least that of the optimizer's state. Returns false if the strategy cannot shard as
// much.
bool use_strategy(RunConfig& config, const optim::Strategy& strategy);

// The run's sharding plan; `params` is gpt_parameters(config.model).
optim::ShardingPlan make_sharding_plan(const RunConfig& config, std::span<const ParamSpec> params);

// Attention kernels of the run's training steps, one line per window: forward and gradients. Empty
// on the host, which has a single implementation. The first call may take seconds, because it makes
// cuDNN's plans. Throws InputError if --attention cannot be met.
std::vector<std::string> attention_notes(const RunConfig& config);

}  // namespace muo::trainer
