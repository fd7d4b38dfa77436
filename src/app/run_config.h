#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/options.h"
#include "data/token_data.h"
#include "model/gpt_config.h"
#include "optim/sharding_plan.h"
#include "optim/update_groups.h"
#include "runtime/device_group.h"

namespace muo {

// D and B of nanochat's scaling rules: scaling.h.
struct ScalingTargets {
  std::int64_t tokens = 1;        // D: the whole part of ratio x scaling parameters, at least 1
  double reference_tokens = 1;    // D of depth 12 with the same vocabulary and extras
  std::int64_t batch_tokens = 1;  // B, a power of two
};

// A run with every decision made.
struct RunConfig {
  TrainOptions options;  // as resolved: what config.toml holds
  GptConfig model;
  ScalingTargets targets;
  OptimizerOptions optimizer;
  NumberFormats formats;
  GroupOptions group;
  int world = 1;                        // group.world
  std::int64_t batch = 1;               // rows per device and micro-step
  bool batch_is_automatic = false;      // fit_batch() may make it smaller
  std::int64_t accumulation = 1;        // micro-steps
  std::int64_t total_batch_tokens = 0;  // world * batch * seq_len * accumulation
  std::int64_t iterations = 0;
  std::int64_t eval_rows = 0;  // of an evaluation, at most: whatever the world
  std::int64_t profile_begin = -1, profile_end = -1;  // steps for a profiler; -1: none
  // In steps, 0: never.
  std::int64_t eval_every = 0, save_every = 0, sample_every = 0, verify_sync_every = 0;
  std::int64_t parameters = 0;          // elements, all of them
  std::int64_t scaling_parameters = 0;  // matrices and lm_head: what data ratios count
  std::int64_t train_tokens = 0;        // in the training data; 0: unknown
  double flops_per_token = 0;
  bool timed_steps = false;        // see StepShape::timed
  bool step_only = false;          // no evaluation and no samples: nothing is made for them
  double bytes_per_token = 0;      // of the training text, for bits per byte; 0: unknown
  std::vector<std::string> notes;  // every automatic decision, one line each; see scaling_notes()

  [[nodiscard]] std::int64_t rows_per_step() const {
    return static_cast<std::int64_t>(world) * batch * accumulation;
  }
};

// Fills what is automatic and checks the rest: automatic sizes are rounded to the nearest feasible
// ones and noted, explicit ones that cannot work are refused with the nearest feasible values
// (InputError). A corpus without `train` (of `plan`) counts for its vocabulary only.
RunConfig resolve(const TrainOptions& options, const Corpus& corpus);

// Who updates what in the run; `params` are gpt_parameters(config.model).
ShardingPlan make_sharding_plan(const RunConfig& config, std::span<const ParamSpec> params);

// The model that `options` describe. Heads not given: as many of 128 as divide the width best.
GptConfig make_gpt_config(const TrainOptions& options, std::int64_t vocab_size);

DataOptions data_options(const TrainOptions& options);
// What a run that reads no data knows of it: the vocabulary of --vocab-size, or the byte
// tokenizer's.
Corpus vocabulary_only(const TrainOptions& options);

}  // namespace muo
