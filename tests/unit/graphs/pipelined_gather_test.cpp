#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "support/drawn.h"
#include "support/toy_training.h"

// A step that gathers at its start the weights committed by the previous step, compared with one
// that gathers at its end those that it commits.
namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

void expect_the_simple_forms_numbers(ToyTraining run, const std::string& what) {
  run.gather = "simple";
  const ToyCurves want = test::train(run);
  run.gather = "pipelined";
  expect_bitwise_in_every_form(run, want, what);
}

TEST(PipelinedStep, IsBitwiseTheSimpleForm) {
  for (const int world : {1, 2, 3, 4})
    expect_the_simple_forms_numbers({.world = world, .steps = 20},
                                    "world " + std::to_string(world));
}

TEST(PipelinedStep, IsBitwiseTheSimpleFormInEveryStrategyAndFormat) {
  test::Drawn drawn(5);
  for (const std::string_view strategy : optim::strategy_names())
    for (const bool bf16 : {false, true}) {
      if (!drawn.runs_next()) continue;
      expect_the_simple_forms_numbers({.world = 3,
                                       .strategy = std::string(strategy),
                                       .accumulation = bf16 ? 1 : 2,
                                       .steps = 6,
                                       .nanochat_bf16 = bf16},
                                      std::string(strategy) + (bf16 ? ", bf16" : ""));
    }
}

TEST(PipelinedStep, IsBitwiseTheSimpleFormInSeveralGraphs) {
  for (const std::int64_t accumulation : {10, 20})  // two graphs; three
    expect_the_simple_forms_numbers({.world = 3,
                                     .accumulation = accumulation,
                                     .steps = 6,
                                     .micro_steps = MicroSteps::kUnrolled},
                                    "accumulation " + std::to_string(accumulation));
}

// Names of a graph's nodes, in order, from `begin` to before `end`.
std::vector<std::string> collectives(const RunState& state) {
  std::vector<std::string> names;
  for (const GraphTrace* trace : state.step.traces())
    for (const GraphTrace::Node& node : trace->nodes) {
      const std::string kind = node.name.substr(0, node.name.find(" #"));
      if (kind.size() < node.name.size() || kind == "embedding" || kind == "advance_step")
        names.push_back(kind);
    }
  return names;
}

std::vector<std::string> collectives_of(ToyTraining run) {
  std::vector<std::string> names;
  run.steps = 1;
  run.before_step = [&](RankContext& rank, RunState& state, int /*step*/) {
    if (rank.rank == 0) names = collectives(state);
  };
  test::train(run);
  return names;
}

TEST(PipelinedStep, GathersAtTheHeadOfTheGraphAndOnlyThere) {
  for (const std::int64_t accumulation : {1, 10}) {
    ToyTraining run{.world = 2, .accumulation = accumulation};
    std::vector<std::string> got = collectives_of(run);
    const auto gathers = std::count(got.begin(), got.end(), "all_gather");
    const auto first = [&](const char* name) {
      return std::find(got.begin(), got.end(), name) - got.begin();
    };
    EXPECT_GT(gathers, 3);
    EXPECT_EQ(first("advance_step"), gathers);
    EXPECT_EQ(first("embedding"), gathers + 1);
    run.gather = "simple";
    std::vector<std::string> simple = collectives_of(run);
    EXPECT_EQ(simple.back(), "all_gather");
    std::sort(got.begin(), got.end());
    std::sort(simple.begin(), simple.end());
    EXPECT_EQ(got, simple);  // the same set
  }
}

TEST(PipelinedStep, OneRankHasTheSameGraphInBothForms) {
  const auto nodes = [](const char* gather) {
    std::vector<std::string> names;
    ToyTraining run{.gather = gather, .steps = 1};
    run.before_step = [&](RankContext& /*rank*/, RunState& state, int /*step*/) {
      for (const GraphTrace::Node& node : state.step.traces().front()->nodes)
        names.push_back(node.name);
    };
    test::train(run);
    return names;
  };
  EXPECT_EQ(nodes("pipelined"), nodes("simple"));
}

// The first batch's loss by the evaluation graph, before each step, and the run's curves.
struct Evaluated {
  std::vector<double> losses;
  ToyCurves curves;
};
Evaluated evaluated(const char* gather, bool flush, bool verify) {
  Evaluated result;
  ToyTraining run{.world = 3, .gather = gather, .steps = 6, .random_order = 3};
  const trainer::RunConfig config = test::toy_config(run);
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(config.step.batch * config.model.seq_len + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * i % 61);
  run.before_step = [&](RankContext& rank, RunState& state, int /*step*/) {
    if (flush) state.step.flush();
    if (verify) state.verify_sync();
    const Shape shape{config.step.batch, config.model.seq_len};
    state.eval->reset();
    state.eval->run(host_tensor(tokens.data(), shape), host_tensor(tokens.data() + 1, shape));
    const LossTotals totals = state.eval->finish();
    if (rank.rank == 0) result.losses.push_back(totals.nats);
  };
  result.curves = test::train(run);
  return result;
}

TEST(PipelinedStep, AFlushGivesTheSimpleFormsWeightsBetweenSteps) {
  const Evaluated want = evaluated("simple", false, false);
  const Evaluated got = evaluated("pipelined", true, false);
  EXPECT_EQ(got.losses, want.losses);
  expect_bitwise(got.curves, want.curves, "flushed before each step");
  const Evaluated verified = evaluated("pipelined", false, true);
  EXPECT_EQ(verified.losses, want.losses);
  expect_bitwise(verified.curves, want.curves, "verified before each step");
}

// Counterpart: old weights give other losses, but do not affect steps.
TEST(PipelinedStep, WithoutAFlushAnEvaluationSeesOldWeights) {
  const Evaluated want = evaluated("simple", false, false);
  const Evaluated got = evaluated("pipelined", false, false);
  EXPECT_NE(got.losses, want.losses);
  expect_bitwise(got.curves, want.curves, "never flushed");
}

}  // namespace
}  // namespace muo::graphs
