#include "trainer/run/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trainer/checkpoint/model_json.h"

namespace muo::trainer {

TrainedSoFar trained_by(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  return {.steps = info.step,
          .rows = info.rows ? *info.rows : info.tokens / checkpoint_model(checkpoint).seq_len,
          .tokens = info.tokens,
          .clock = info.clock.value_or(BudgetClock{})};
}

optim::NumberFormats RunConfig::formats() const {
  const NumberOptions& o = options.numbers;
  return {.gradients = o.gradients,
          .gradient_wire = o.gradient_wire.value_or(o.gradients),
          .weight_wire = o.weight_wire.value_or(model.dtype),
          .momentum_state = o.momentum_state,
          .adam_state = o.adam_state,
          .embedding_state = o.embedding_state,
          .split_masters = o.master_weights == MasterWeights::kSplit};
}

TrainOptions RunConfig::resolved() const {
  TrainOptions out = options;
  out.batch.device_rows = step.batch;
  if (batches.empty()) out.batch.total_tokens = tokens_per_step();
  // A target batch size marks the total as automatic for a resumed run.
  if (options.batch.total_tokens)
    out.batch.target_tokens.reset();
  else
    out.batch.target_tokens = options.batch.target_tokens.value_or(targets.batch_tokens);
  if (is_bounded()) out.batch.iterations = iterations();
  NumberOptions& numbers = out.numbers;
  numbers.dtype = model.dtype;
  numbers.gradient_wire = formats().gradient_wire;
  numbers.weight_wire = formats().weight_wire;
  numbers.attention = model.attention.kernels;
  numbers.deterministic = model.attention.deterministic;
  numbers.fused_products = options.numbers.fused_products.value_or(model.fused_products);
  return out;
}

std::string RunConfig::batch_text() const {
  if (batches.empty()) return std::to_string(tokens_per_step());
  const auto [least, most] = std::ranges::minmax(batches, {}, &TokenCount::Stage::tokens);
  return fmt::format("{} to {}", least.tokens, most.tokens);
}

bool RunConfig::reduces_every_micro_step() const {
  return world() > 1 && shard_of(options.sharding) >= optim::Shard::kGradients;
}

bool RunConfig::needs_one_micro_step() const {
  return options.numbers.gradients == DType::kBF16 && !reduces_every_micro_step();
}

graphs::MicroSteps RunConfig::form_of_micro_steps() const {
  return graphs::StepGraph::form_of(step, reduces_every_micro_step());
}

std::int64_t RunConfig::traced_micro_steps() const {
  return form_of_micro_steps() == graphs::MicroSteps::kLoop
             ? step.accumulation
             : std::min(step.accumulation, graphs::StepGraph::kMaxUnrolled + 1);
}

optim::Shard shard_of(const ShardingOptions& options) {
  return options.shard.value_or(
      std::min(optim::strategy_of(options.strategy).most, optim::Shard::kOptimizer));
}

bool use_strategy(RunConfig& config, const optim::Strategy& strategy) {
  ShardingOptions& o = config.options.sharding;
  const optim::Shard shard = shard_of({.strategy = std::string(strategy.name), .shard = o.shard});
  if (shard > strategy.most && shard > optim::Shard::kOptimizer) return false;
  o.strategy = strategy.name;
  o.shard = std::clamp(shard, strategy.least, strategy.most);
  return true;
}

optim::ShardingPlan make_sharding_plan(const RunConfig& config, std::span<const ParamSpec> params) {
  const ShardingOptions& o = config.options.sharding;
  const optim::Shard shard = shard_of(o);
  optim::ShardingPlan plan = optim::make_sharding_plan(
      params, config.world(), o.strategy, config.formats(), o.gather,
      optim::newton_schulz_form(config.options.optimizer.newton_schulz), shard);
  plan.version = &optim::optimizer_version(config.options.optimizer.version);
  plan.newton_schulz_steps = config.options.optimizer.ns_steps;
  plan.micro_steps = config.step.accumulation;
  optim::assign_tags(plan);
  if (config.world() > 1 && config.group.plugin == nullptr &&
      o.replicas != optim::ReplicaAt::kEveryRank && shard != optim::Shard::kWeights)
    optim::share_replicas(plan);
  return plan;
}

std::vector<std::string> attention_notes(const RunConfig& config) {
  std::map<std::int64_t, std::string> by_window;
  if (config.group.plugin != nullptr)
    for (std::int64_t layer = 0; layer < config.model.n_layer; ++layer) {
      const AttentionSize size =
          model::attention_size(config.model, config.step.batch, config.model.seq_len, layer, true);
      if (!by_window.contains(size.window)) by_window[size.window] = describe_attention(size);
    }
  std::vector<std::string> notes;
  notes.reserve(by_window.size());
  for (const auto& [window, how] : by_window)
    notes.push_back(fmt::format("attention, window {}: {}", window, how));
  return notes;
}

bool is_due(const SaveOptions& save, std::chrono::duration<double> age) {
  using Minutes = std::chrono::duration<double, std::chrono::minutes::period>;
  return save.minutes > 0 && age >= Minutes(save.minutes);
}

}  // namespace muo::trainer
