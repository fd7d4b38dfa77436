// --shard weights: a rank holds its segment of the weights, and each pass gathers the weights that
// a layer reads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "support/drawn.h"
#include "support/sanitized.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

ToyTraining sharding(ToyTraining run, const char* what) {
  run.shard = what;
  return run;
}

std::string text(const ToyTraining& run) {
  return run.strategy + ", world " + std::to_string(run.world) + ", " +
         std::to_string(run.accumulation) + " micro-steps, " + run.gather +
         (run.nanochat_bf16 ? ", bf16" : "");
}

// Results are bitwise equal where both sides reduce gradients in the same way: once per step, as
// here, or in every micro-step, as in the next test.
TEST(ShardedWeights, AreBitwiseReplicas) {
  test::Drawn drawn(5);
  for (const int world : test::kSanitized ? std::vector{3} : std::vector{1, 2, 3, 4, 5})
    for (const optim::Strategy& strategy : optim::strategy_list()) {
      if (strategy.most < optim::Shard::kWeights) continue;
      for (const bool bf16 : {false, true}) {
        if (!drawn.runs_next()) continue;
        const ToyTraining run{.world = world,
                              .strategy = std::string(strategy.name),
                              .gather = bf16 ? "simple" : "pipelined",
                              .steps = test::kSanitized ? 2 : 4,
                              .nanochat_bf16 = bf16};
        // `parallel` sums the norm in another order of its matrices.
        const ToyCurves got = test::train(sharding(run, "weights"));
        const ToyCurves want = test::train(sharding(run, "optimizer"));
        EXPECT_EQ(got.losses, want.losses) << text(run);
        EXPECT_EQ(got.weights, want.weights) << text(run);
      }
    }
}

TEST(ShardedWeights, AreBitwiseReplicasInAnyOrderAndInSeveralGraphs) {
  test::Drawn drawn(5);
  for (const std::string_view strategy :
       {"balanced", "parallel", "ns_replicated", "all_to_all", "layerwise", "stacked"})
    for (const std::int64_t accumulation : {1, 2, 20}) {
      if (!drawn.runs_next()) continue;
      ToyTraining run{.world = 3,
                      .strategy = std::string(strategy),
                      .accumulation = accumulation,
                      .steps = test::kSanitized ? 2 : 3,
                      .recompute = {.blocks = 1, .mlps = 1},
                      .nanochat_bf16 = accumulation == 2};
      const ToyCurves replicas = test::train(sharding(run, "gradients"));
      run.shard = "weights";
      const ToyCurves want = test::train(run);
      EXPECT_EQ(want.losses, replicas.losses) << text(run);
      EXPECT_EQ(want.weights, replicas.weights) << text(run);
      expect_bitwise_in_every_form(run, want, text(run));
      run.nan_between_steps = true;
      expect_bitwise(test::train(run), want, text(run) + ", NaN between steps");
    }
}

TEST(ShardedWeights, KeepTheirMastersInTwoHalves) {
  for (const std::string strategy : {"balanced", "parallel", "ns_replicated", "layerwise"}) {
    const ToyTraining run{
        .world = 3, .strategy = strategy, .steps = 4, .nanochat_bf16 = true, .lean = true};
    const ToyCurves got = test::train(sharding(run, "weights"));
    const ToyCurves want = test::train(sharding(run, "optimizer"));
    EXPECT_EQ(got.losses, want.losses) << strategy;
    EXPECT_EQ(got.weights, want.weights) << strategy;
  }
}

TEST(ShardedWeights, AllocateNothingWhileRunning) {
  EXPECT_EQ(test::train({.world = 4, .shard = "weights", .steps = 3}).allocations_while_running, 0);
}

}  // namespace
}  // namespace muo::graphs
