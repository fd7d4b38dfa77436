// --shard gradients against optimizer: every micro-step's gradients are reduced, and a rank keeps
// only its part of their sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "support/sanitized.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

std::vector<std::string> strategies() {
  std::vector<std::string> names;
  for (const optim::Strategy& strategy : optim::strategy_list())
    if (strategy.most >= optim::Shard::kGradients) names.emplace_back(strategy.name);
  return names;
}

ToyTraining sharded(ToyTraining run) {
  run.shard = "gradients";
  return run;
}

std::string text(const ToyTraining& run) {
  return run.strategy + ", world " + std::to_string(run.world) + ", " +
         std::to_string(run.accumulation) + " micro-steps, " + run.gather +
         (run.nanochat_bf16 ? ", bf16" : "");
}

// One micro-step is reduced once in both, and one rank has nothing to reduce.
TEST(ShardedAccumulation, IsBitwiseLocalWhereSumsAreInTheSameOrder) {
  for (const std::string& strategy : strategies())
    for (const bool bf16 : {false, true}) {
      if (test::kSanitized && bf16 != (strategy == "balanced")) continue;
      const ToyTraining run{.world = 3,
                            .strategy = strategy,
                            .steps = test::kSanitized ? 2 : 6,
                            .nanochat_bf16 = bf16};
      expect_bitwise_in_every_form(sharded(run), test::train(run), text(run));
    }
  for (const std::int64_t accumulation : {2, 20}) {
    const ToyTraining run{.accumulation = accumulation, .steps = test::kSanitized ? 2 : 6};
    expect_bitwise(test::train(sharded(run)), test::train(run), text(run));
  }
}

// Otherwise only the order of sums differs (decision derived-tolerances), and it is the same for
// all strategies.
TEST(ShardedAccumulation, AgreesWithLocal) {
  for (const auto& [world, accumulation] : {std::pair{2, 5}, {3, 2}, {4, 5}}) {
    ToyTraining run{.world = world, .accumulation = accumulation};
    const test::Agreement bounds = test::agreement(run);
    const ToyCurves local = test::train(run);
    const ToyCurves want = test::train(sharded(run));
    EXPECT_NE(want.losses, local.losses) << text(run);  // the order of sums does differ
    EXPECT_LE(test::curve_distance(want.losses, local.losses), bounds.losses) << text(run);
    EXPECT_LE(test::relative_error(want.weights, {local.weights.begin(), local.weights.end()}),
              bounds.weights)
        << text(run);
    for (const std::string& strategy : strategies()) {
      run.strategy = strategy;
      const ToyCurves got = test::train(sharded(run));
      EXPECT_EQ(got.losses, want.losses) << text(run);
      EXPECT_EQ(got.weights, want.weights) << text(run);
    }
  }
}

TEST(ShardedAccumulation, IsBitwiseTheSameInAnyOrderAndInSeveralGraphs) {
  for (const std::string& strategy : strategies())
    for (const std::int64_t accumulation : {2, 20}) {
      const bool bf16 = accumulation == 2;
      const ToyTraining run = sharded({.world = 3,
                                       .strategy = strategy,
                                       .gather = bf16 ? "simple" : "pipelined",
                                       .accumulation = accumulation,
                                       .steps = 4,
                                       .nanochat_bf16 = bf16});
      expect_bitwise_in_every_form(run, test::train(run), text(run));
    }
}

TEST(ShardedAccumulation, SeveralGraphsGiveTheSameCurve) {
  for (const std::int64_t accumulation : {10, 20})
    test::expect_toy_agreement(
        test::train(sharded({.world = 3, .accumulation = accumulation, .steps = 50})),
        std::to_string(accumulation) + " micro-steps");
}

}  // namespace
}  // namespace muo::graphs
