#include "kit/plan/plan_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>

#include "kit/plan/plan_compare.h"
#include "kit/plan/roofline.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

PlanReport report_of(const std::string& strategy, std::int64_t devices) {
  trainer::TrainOptions options;
  options.model.preset = trainer::ModelPreset::kPlain;
  options.devices.count = devices;
  options.batch.iterations = 10;
  options.sharding.strategy = strategy;
  options.sharding.replicas = optim::ReplicaAt::kEveryRank;
  data::Corpus corpus;
  corpus.vocab_size = data::kByteVocab;
  PlanReport report;
  report.run.config = trainer::resolve(options, corpus);
  report.run.params = model::gpt_parameters(report.run.config.model);
  report.run.plan =
      optim::make_sharding_plan(report.run.params, report.run.config.world(), strategy);
  report.run.memory.specs = {
      {.name = "w", .shape = {1 << 20}, .category = MemoryCategory::kWeights},
      {.name = "x", .shape = {1 << 19}}};
  report.run.memory.offsets = {0, 0};
  report.run.memory.bytes = 5 << 20;
  return report;
}

TEST(PlanReport, AccountsForEveryParameterOnce) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const std::int64_t devices : {1, 2, 3}) {
      const json plan = json::parse(plan_json(report_of(std::string(strategy), devices)));
      std::int64_t in_buckets = 0;
      for (const json& bucket : plan["buckets"])
        in_buckets += bucket["elements"].get<std::int64_t>();
      EXPECT_EQ(in_buckets, plan["parameters"]) << strategy;
      std::int64_t in_groups = 0;
      for (const json& group : plan["parameter_groups"])
        in_groups += group.get<std::int64_t>();
      EXPECT_EQ(in_groups, plan["parameters"]) << strategy;
      ASSERT_EQ(plan["ranks"].size(), static_cast<std::size_t>(devices));
      for (const json& rank : plan["ranks"])
        EXPECT_EQ(rank["sent_bytes"] == 0, devices == 1) << strategy;
    }
}

TEST(PlanReport, CountsReplicatedUpdatesAtEveryRank) {
  const json plan = json::parse(plan_json(report_of("ddp", 2)));
  ASSERT_EQ(plan["ranks"].size(), 2U);
  for (const json& rank : plan["ranks"])
    EXPECT_EQ(rank["elements"], plan["parameters"]);
}

TEST(PlanReport, SumsMemoryBeforeAndAfterSharing) {
  const PlanReport report = report_of("balanced", 2);
  const json plan = json::parse(plan_json(report));
  EXPECT_EQ(plan["memory_bytes_per_device"], 5 << 20);
  EXPECT_EQ(plan["memory_bytes"], 10 << 20);
  const std::string table = plan_table(report);
  EXPECT_THAT(table, HasSubstr("4.00 MiB"));
  EXPECT_THAT(table, HasSubstr("6.00 MiB"));
  EXPECT_THAT(table, HasSubstr("1.00 MiB saved"));
  EXPECT_THAT(table, HasSubstr("All devices together: 10.00 MiB"));
}

TEST(PlanReport, CountsSharedMemoryOnce) {
  PlanReport report = report_of("balanced", 2);
  report.run.memory.specs[0].common = true;
  report.run.memory.bytes = 1 << 20;
  report.run.memory.common_bytes = 4 << 20;
  optim::share_replicas(report.run.plan);
  const json plan = json::parse(plan_json(report));
  EXPECT_EQ(plan["memory_bytes_per_device"], 1 << 20);
  EXPECT_EQ(plan["memory_bytes_in_common"], 4 << 20);
  EXPECT_EQ(plan["memory_bytes"], 6 << 20);
  EXPECT_EQ(plan["process_bytes"].get<std::int64_t>() - trainer::process_base(2, false), 6 << 20);
  const std::string table = plan_table(report);
  EXPECT_THAT(table, HasSubstr("shared by all devices    4.00 MiB"));
  EXPECT_THAT(table, HasSubstr("1.00 MiB saved"));
  EXPECT_THAT(table, HasSubstr("All devices together: 6.00 MiB"));
  EXPECT_THAT(table, HasSubstr("one replica for all"));
}

TEST(PlanReport, ShowsModelParametersAndSharding) {
  const std::string table = plan_table(report_of("balanced", 2));
  EXPECT_THAT(table, HasSubstr("4 layers, width 256, 2 heads of 128"));
  EXPECT_THAT(table, HasSubstr("3,145,728"));  // 4 layers x 12 x 256 x 256
  EXPECT_THAT(table, HasSubstr("Sharding: balanced, 2 devices"));
  EXPECT_THAT(table, HasSubstr("Work by rank"));
}

TEST(PlanReport, NamesEachExtraThatIsOn) {
  using model::GptConfig;
  for (const auto& [extra, name] : {std::pair{&GptConfig::value_embeddings, "value embeddings"},
                                    {&GptConfig::smear, "smear"},
                                    {&GptConfig::backout, "backout"},
                                    {&GptConfig::resid_lambdas, "residual lambdas"},
                                    {&GptConfig::x0_lambdas, "x0 lambdas"}}) {
    PlanReport report = report_of("balanced", 1);
    report.run.config.model.*extra = true;
    EXPECT_THAT(plan_table(report), HasSubstr(fmt::format("Extras: {};", name)));
  }
}

TEST(PlanReport, StateOf16BitsTakesHalfTheMemory) {
  trainer::RunConfig config = report_of("balanced", 1).run.config;
  config.model.dtype = DType::kBF16;
  const auto memory = [&] {
    const json all = json::parse(compare_json(compare_strategies(config)));
    for (const json& each : all["strategies"])
      if (each["strategy"] == "balanced") return each["memory_bytes_by_category"];
    return json();
  };
  const json wide = memory();
  trainer::NumberOptions& numbers = config.options.numbers;
  numbers.master_weights = trainer::MasterWeights::kSplit;
  numbers.momentum_state = numbers.adam_state = DType::kBF16;
  const json lean = memory();
  for (const char* category : {"masters", "adam state"})
    EXPECT_EQ(2 * lean[category].get<double>(), wide[category].get<double>()) << category;
  EXPECT_LT(1.9 * lean["momentum"].get<double>(), wide["momentum"].get<double>());  // and variance
  EXPECT_EQ(lean["weights"], wide["weights"]);
}

// The comparison's numbers agree with the descriptions of the strategies.
TEST(PlanReport, ComparesAllStrategies) {
  PlanReport report = report_of("balanced", 4);
  const Comparison comparison = compare_strategies(report.run.config);
  ASSERT_EQ(comparison.costs.size(), optim::strategy_names().size());
  const json out = json::parse(compare_json(comparison));
  const auto row = [&](const std::string& strategy) {
    for (const json& each : out["strategies"])
      if (each["strategy"] == strategy) return each;
    ADD_FAILURE() << strategy;
    return json();
  };
  const auto number = [&](const std::string& strategy, const char* what) {
    return row(strategy)[what].get<double>();
  };
  const auto memory = [&](const std::string& strategy, const char* category) {
    return row(strategy)["memory_bytes_by_category"][category].get<double>();
  };
  for (const char* replicated : {"ddp", "ns_replicated"})
    EXPECT_DOUBLE_EQ(number(replicated, "muon_flops"), 4 * number("balanced", "muon_flops"));
  EXPECT_GT(memory("ddp", "momentum"), 3.9 * memory("balanced", "momentum"));
  EXPECT_GT(memory("ddp", "adam state"), 3.9 * memory("balanced", "adam state"));
  EXPECT_GT(number("allreduce_owner", "sent_bytes"), 1.1 * number("balanced", "sent_bytes"));
  EXPECT_GT(number("ns_replicated", "sent_bytes"), number("all_to_all", "sent_bytes"));
  EXPECT_GT(number("parallel", "balance"), number("parallel_round_robin", "balance"));
  const std::string table = compare_table(comparison);
  for (const json& each : out["strategies"]) {
    const auto mib = [&](const char* what) {
      return fmt::format("{:.1f}", each[what].get<double>() / 1048576);
    };
    const auto name = each["strategy"].get<std::string>();
    EXPECT_THAT(table,
                ContainsRegex("\n  " + name + " .* " + mib("memory_bytes_per_device") + "\n"));
    EXPECT_THAT(table, ContainsRegex("\n  " + name +
                                     fmt::format(" +{:.2f} MiB ",
                                                 each["sent_bytes"].get<double>() / 1048576)));
  }
}

// The expected bytes are those accessed by the traced nodes, without the scalars of each node.
TEST(PlanReport, CountsWhatCommitReadsAndWrites) {
  const trainer::DescribedAttention attention(trainer::described_gpu("h100"));
  const auto expect_traced = [&](const std::function<void(trainer::TrainOptions&)>& change) {
    trainer::TrainOptions options;
    options.model.depth = 4;
    options.data.vocab_size = 1024;
    options.devices.described = "h100";
    options.devices.count = 4;
    options.batch.device_rows = 1;
    options.batch.iterations = 10;
    change(options);
    const trainer::RunConfig config =
        trainer::resolve(options, data::corpus_without_tokens(options.data));
    double traced = 0;
    for (const PredictedOperation& row : predict_step(config, gpu_rates("h100")).operations)
      if (row.work.name == "adamw" || row.work.name == "muon_commit") traced += row.work.bytes;
    const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
    const optim::PlanCost cost =
        optim::plan_cost(trainer::make_sharding_plan(config, params), params);
    EXPECT_NEAR(static_cast<double>(cost.commit_bytes[0]) / traced, 1, 2e-3);
  };
  for (const optim::Strategy& strategy : optim::strategy_list()) {
    SCOPED_TRACE(strategy.name);
    expect_traced([&](trainer::TrainOptions& o) { o.sharding.strategy = strategy.name; });
  }
  expect_traced([](trainer::TrainOptions& o) { o.devices.count = 1; });
  expect_traced([](trainer::TrainOptions& o) { o.numbers.dtype = DType::kF32; });
  expect_traced([](trainer::TrainOptions& o) { o.sharding.shard = optim::Shard::kWeights; });
  expect_traced(
      [](trainer::TrainOptions& o) { o.numbers.master_weights = trainer::MasterWeights::kSplit; });
  expect_traced([](trainer::TrainOptions& o) {
    o.devices.comm = trainer::Comm::kPeer;
    o.sharding.shard = optim::Shard::kGradients;
    o.numbers.gradients = DType::kBF16;
  });
  expect_traced([](trainer::TrainOptions& o) {
    o.numbers.adam_state = o.numbers.momentum_state = DType::kBF16;
  });
}

// exposed_time() is tested elsewhere; this tests that it is called for this run.
TEST(PlanReport, PredictsWhatAnUpdateAdds) {
  PlanReport report = report_of("stacked", 4);
  const optim::MachineRates rates{.link_bytes_per_s = 1e9, .gemm_flops_per_s = 1e12};
  EXPECT_FALSE(json::parse(plan_json(report)).contains("predicted"));
  EXPECT_THAT(plan_table(report), testing::Not(HasSubstr("Predicted")));
  report.rates = rates;
  const json plan = json::parse(plan_json(report));
  const double sent = plan["ranks"][0]["sent_bytes"];
  EXPECT_NEAR(plan["predicted"]["communication_ms"], sent * 1e-6, 1e-3);
  const double flops = plan["ranks"][0]["muon_flops"];
  EXPECT_NEAR(plan["predicted"]["newton_schulz_ms"], flops * 1e-9, 1e-9);
  EXPECT_THAT(plan_table(report), HasSubstr("Predicted: 1 GB/s, 0 us per collective, 1 TFLOP/s"));
  const Comparison all = compare_strategies(report.run.config, rates);
  const json compared = json::parse(compare_json(all));
  for (const json& row : compared["strategies"]) {
    EXPECT_GT(row["predicted"]["exposed_communication_ms"], 0);
    if (row["strategy"] == "stacked") {
      for (const auto& [name, ms] : plan["predicted"].items())
        EXPECT_NEAR(row["predicted"][name], ms, 1e-9) << name;
    }
  }
  EXPECT_THAT(compare_table(all), HasSubstr("exposed communication"));
}

TEST(PlanReport, ReadsRatesInTheirUnits) {
  trainer::RunConfig run;
  run.step.accumulation = 4;
  EXPECT_FALSE(machine_rates(run, {}));
  trainer::PredictionOptions options;
  options.link_gbps = 370;
  options.gemm_tflops = 600;
  options.link_us = 20;
  options.step_ms = 1067;
  const optim::MachineRates rates = machine_rates(run, options).value();
  EXPECT_DOUBLE_EQ(rates.link_bytes_per_s, 370e9);
  EXPECT_DOUBLE_EQ(rates.gemm_flops_per_s, 600e12);
  EXPECT_DOUBLE_EQ(rates.link_latency_s, 20e-6);
  EXPECT_DOUBLE_EQ(rates.step_s, 1.067);
  EXPECT_EQ(rates.accumulation, 4);
}

// Expected values are the printed digits of nanochat's table by depth.
TEST(PlanReport, MatchesNanochatsDepthTwelve) {
  trainer::TrainOptions options;
  options.model.depth = 12;
  options.devices.count = 8;
  data::Corpus corpus;
  corpus.vocab_size = 32768;
  PlanReport report;
  report.run.config = trainer::resolve(options, corpus);
  report.run.params = model::gpt_parameters(report.run.config.model);
  report.run.plan = optim::make_sharding_plan(report.run.params, 8, "balanced");
  const json plan = json::parse(plan_json(report));
  const json groups = {{"wte", 25165824},
                       {"value_embeds", 150994944},
                       {"lm_head", 25165824},
                       {"transformer_matrices", 84935088},
                       {"scalars", 50}};
  EXPECT_EQ(plan["parameter_groups"], groups);
  EXPECT_EQ(plan["parameters"], 286261730);
  EXPECT_EQ(plan["scaling_parameters"], 110100912);
  EXPECT_EQ(plan["flops_per_token"], 759696048.0);
  EXPECT_EQ(plan["target_tokens"], 1321210944);
  EXPECT_EQ(plan["target_batch_tokens"], 1 << 19);
  EXPECT_EQ(plan["iterations"], 2520);
  const json rates = {{"lm_head", 0.008},       {"wte", 0.3},        {"value_embeds", 0.15},
                      {"resid_lambdas", 0.005}, {"x0_lambdas", 0.5}, {"smear", 0.2},
                      {"matrices", 0.02}};
  EXPECT_EQ(plan["learning_rates"], rates);
  EXPECT_EQ(plan["weight_decay"], 0.28);
  const std::string table = plan_table(report);
  for (const char* text : {"286,261,730", "110,100,912", "84,935,088", "(13.0 % attention; 726M",
                           "Extras: value embeddings, smear", "queries and keys scaled by 1.2"})
    EXPECT_THAT(table, HasSubstr(text));
}

}  // namespace
}  // namespace muo::kit
