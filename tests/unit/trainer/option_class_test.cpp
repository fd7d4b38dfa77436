#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "graphs/run_state.h"
#include "runtime/memory/memory_plan.h"
#include "support/files.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/options/option_table.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"
#include "trainer/train/log_lines.h"

namespace muo::trainer {
namespace {

using Settings = std::vector<std::pair<std::string_view, std::string>>;

// The parts of a run that depend on options.
struct Touched {
  HyperParameters hyper;
  std::vector<std::int64_t> memory;  // elements of parameters; bytes by rank and category
  std::string constants;             // constants of the graphs, besides sizes
};

TrainOptions options_with(const Settings& settings) {
  TrainOptions options;
  const std::vector<OptionRow> rows = option_table(options);
  for (const auto& [name, value] : settings) {
    const auto row = std::ranges::find(rows, name, &OptionRow::name);
    EXPECT_NE(row, rows.end()) << name;
    const std::vector<std::string> values = {value};
    set_option(*row, values, name);
  }
  return options;
}

Touched touched_by(const Settings& settings) {
  const TrainOptions options = options_with(settings);
  RunConfig run = resolve(options, data::corpus_without_tokens(options.data));
  fit_memory(run, memory_budget(run).to_plan);
  const std::vector<ParamSpec> params = model::gpt_parameters(run.model);
  const optim::ShardingPlan plan = make_sharding_plan(run, params);
  Touched out{.hyper = run.hyper, .memory = {}, .constants = model_text(run.model)};
  for (const ParamSpec& param : params)
    out.memory.push_back(param.shape.numel());
  for (int rank = 0; rank < run.world(); ++rank) {
    const MemoryPlan memory = graphs::plan_rank_memory(run, params, plan, rank);
    out.memory.push_back(memory.bytes);
    out.memory.push_back(memory.common_bytes);
    for (const MemoryCategory category : kValues<MemoryCategory>)
      out.memory.push_back(memory.category_bytes(category));
  }
  const ShardingOptions& sharding = run.options.sharding;
  for (const std::string_view part :
       {std::string_view(sharding.strategy), name_of(sharding.gather),
        std::string_view(run.options.optimizer.newton_schulz), std::string_view(plan.version->name),
        std::string_view(run.options.capture.graph ? "graph" : "eager"),
        std::string_view(run.group.graph_branches() == Branches::kOne ? "one" : "three"),
        std::string_view(run.model.attention.deterministic ? "deterministic" : "")})
    out.constants += " " + std::string(part);
  out.constants += " " + std::to_string(run.model.document_token);
  out.constants += " " + std::to_string(plan.newton_schulz_steps);
  return out;
}

OptionClass class_of(const Touched& before, const Touched& after) {
  if (before.memory != after.memory) return OptionClass::kShape;
  if (before.constants != after.constants) return OptionClass::kCaptured;
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bit for bit, as the device reads it
  const bool same = std::memcmp(&before.hyper, &after.hyper, sizeof(HyperParameters)) == 0;
  return same ? OptionClass::kHost : OptionClass::kMemory;
}

// A value other than the default, with the settings that give it an effect.
struct Case {
  std::string_view name;
  std::string value;
  Settings with = {};
};

// A log with one pace.
std::string positions() {
  static const test::TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.jsonl";
  test::write_file(file, pace_line({.from = 0}, 0));
  return file;
}

// NOLINTNEXTLINE(readability-function-size): a row for each option
const std::vector<Case>& cases() {
  static const Settings micro_steps = {{"device-batch-size", "1"}, {"total-batch-size", "512"}};
  static const Settings bf16 = {{"dtype", "bf16"}};
  static const Settings whole_step = {
      {"dtype", "bf16"}, {"device-batch-size", "1"}, {"total-batch-size", "128"}};
  static const std::vector<Case> all = {
      {"data", "elsewhere"},
      {"val-data", "elsewhere"},
      {"data-max-bytes", "1000"},
      {"vocab-size", "1000"},
      {"packing", "best-fit"},
      {"bos-token", "7", {{"document-mask", "on"}}},
      {"depth", "3"},
      {"aspect-ratio", "32"},
      {"head-dim", "64"},
      {"n-layer", "3"},
      {"n-embd", "64"},
      {"n-head", "2"},
      {"n-kv-head", "1", {{"n-head", "2"}}},
      {"max-seq-len", "128"},
      {"softcap", "30"},
      {"model", "plain"},
      {"value-embeddings", "off"},
      {"smear", "off"},
      {"backout", "off"},
      {"resid-lambdas", "off"},
      {"x0-lambdas", "off"},
      {"qk-scale", "1.5"},
      {"window-pattern", "L"},
      {"document-mask", "on"},
      {"device-batch-size", "2", {{"total-batch-size", "512"}}},
      {"total-batch-size", "1024"},
      {"target-batch-size", "512"},
      {"num-iterations", "7"},
      {"target-flops", "1e15"},
      {"target-param-data-ratio", "100"},
      {"time-budget", "5m"},
      {"positions-from", positions()},
      {"matrix-lr", "0.1"},
      {"embedding-lr", "0.1"},
      {"unembedding-lr", "0.1"},
      {"scalar-lr", "0.1"},
      {"weight-decay", "0.1"},
      {"batch-lr-scale", "2"},
      {"width-lr-scale", "2"},
      {"weight-decay-scale", "2"},
      {"warmup-steps", "7"},
      {"warmdown-ratio", "0.5"},
      {"warmdown-shape", "cosine"},
      {"final-lr-frac", "0.5"},
      {"momentum", "0.96"},
      {"momentum-start", "0.5"},
      {"momentum-ramp", "7"},
      {"momentum-end", "0.5"},
      {"nesterov", "off"},
      {"muon-beta2", "0.5"},
      {"adam-beta1", "0.5"},
      {"adam-beta2", "0.5"},
      {"adam-eps", "1e-8"},
      {"ns-steps", "3"},
      {"optimizer-spec", "2025-10"},
      {"newton-schulz", "gram"},
      {"max-grad-norm", "1"},
      {"outlier-deviations", "3"},
      {"on-outlier", "skip"},
      {"max-skipped", "3"},
      {"devices", "3"},
      {"strategy", "ddp"},
      {"gather", "simple"},
      {"replicas", "own"},
      {"shard", "gradients", micro_steps},
      {"recompute", "block"},
      {"memory-limit", "40MB"},
      {"graph", "off"},
      {"graph-branches", "1"},
      {"graph-micro-steps", "loop", micro_steps},
      {"seed", "7"},
      {"verify-sync-every", "7"},
      {"dtype", "bf16"},
      {"gradient-dtype", "bf16", whole_step},
      {"gradient-wire", "bf16"},
      {"weight-wire", "bf16"},
      {"master-weights", "split", bf16},
      {"momentum-state", "bf16"},
      {"adam-state", "bf16"},
      {"embedding-state", "bf16"},
      {"deterministic", "off"},
      {"out", "elsewhere"},
      {"resume", "auto"},
      {"init-from", "elsewhere"},
      {"eval-every", "7"},
      {"eval-tokens", "1000"},
      {"save-every", "7"},
      {"save-minutes", "7"},
      {"save-before-eval", "7"},
      {"keep-last", "7"},
      {"keep-every", "7"},
      {"save-mode", "wait"},
      {"on-save-error", "continue"},
      {"sample-every", "7"},
      {"alarms", "off"},
      {"log-every", "7"},
      {"norms-every", "7"},
      {"tensorboard", "off"},
      {"stuck-after", "7"},
      {"store-port", "29501"},
      {"profile-steps", "1:2"},
      {"timeline", "elsewhere"},
      {"graph-dot", "elsewhere"},
      {"result", "elsewhere"},
  };
  return all;
}

// Options that have only one value on the host, for which this test resolves runs.
constexpr std::array<std::string_view, 8> kOfDevices = {
    "tokenizer",  "backend", "ranks-per-device", "comm",
    "gemm-table", "tune",    "attention",        "fused-products"};

TEST(OptionClass, MatchesWhatAChangeAffects) {
  TrainOptions options;
  const std::vector<OptionRow> rows = option_table(options);
  for (const Case& c : cases()) {
    const auto row = std::ranges::find(rows, c.name, &OptionRow::name);
    ASSERT_NE(row, rows.end()) << c.name;
    Settings base = {{"backend", "host"}, {"devices", "2"}, {"depth", "1"}, {"max-seq-len", "64"}};
    base.insert(base.end(), c.with.begin(), c.with.end());
    Settings changed = base;
    changed.emplace_back(c.name, c.value);
    const OptionClass seen = class_of(touched_by(base), touched_by(changed));
    if (c.name == "window-pattern")  // only cuDNN's workspace depends on the windows
      EXPECT_EQ(seen, OptionClass::kCaptured);
    else
      EXPECT_EQ(static_cast<int>(seen), static_cast<int>(row->kind)) << c.name;
  }
}

TEST(OptionClass, IsTestedForEveryOptionOfARun) {
  TrainOptions options;
  for (const OptionRow& row : option_table(options)) {
    const bool tested = std::ranges::find(cases(), row.name, &Case::name) != cases().end();
    const bool of_devices = std::ranges::find(kOfDevices, row.name) != kOfDevices.end();
    EXPECT_NE(tested, of_devices) << row.name;
    EXPECT_NE(row.kind, OptionClass::kOther) << row.name;
  }
}

}  // namespace
}  // namespace muo::trainer
