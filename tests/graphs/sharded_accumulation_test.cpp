// --accumulate sharded against local: every micro-step's gradients are reduced, and only a rank's
// part of their sum is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/run_state.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo {
namespace {

using test::ToyCurves;
using test::ToyTraining;

ToyTraining sharded(ToyTraining run) {
  run.accumulate = "sharded";
  return run;
}

void expect_bitwise(const ToyCurves& got, const ToyCurves& want, const std::string& what) {
  EXPECT_EQ(got.losses, want.losses) << what;
  EXPECT_EQ(got.grad_norms, want.grad_norms) << what;
  EXPECT_EQ(got.weights, want.weights) << what;
}

std::string text(const ToyTraining& run) {
  return run.strategy + ", world " + std::to_string(run.world) + ", " +
         std::to_string(run.accumulation) + " micro-steps, " + run.gather +
         (run.nanochat_bf16 ? ", bf16" : "");
}

// Eagerly, and in random orders of the graphs' nodes.
void expect_the_same_in_any_order(ToyTraining run, const ToyCurves& want) {
  run.graph = false;
  expect_bitwise(test::train(run), want, text(run) + ", eager");
  run.graph = true;
  for (const std::uint64_t seed : {1U, 2U}) {
    run.random_order = seed;
    expect_bitwise(test::train(run), want, text(run) + ", order " + std::to_string(seed));
  }
}

// One micro-step is reduced once in both, and one rank has nothing to reduce.
TEST(ShardedAccumulation, IsBitwiseLocalWhereSumsAreInTheSameOrder) {
  for (const std::string_view strategy : strategy_names())
    for (const bool bf16 : {false, true}) {
      const ToyTraining run{
          .world = 3, .strategy = std::string(strategy), .steps = 6, .nanochat_bf16 = bf16};
      const ToyCurves got = test::train(sharded(run));
      expect_bitwise(got, test::train(run), text(run));
      expect_the_same_in_any_order(sharded(run), got);
    }
  for (const std::int64_t accumulation : {2, 20}) {
    const ToyTraining run{.accumulation = accumulation, .steps = 6};
    expect_bitwise(test::train(sharded(run)), test::train(run), text(run));
  }
}

// Elsewhere only the order of the sums differs (design decision 8), and all strategies have the
// same one.
TEST(ShardedAccumulation, AgreesWithLocal) {
  for (const auto& [world, accumulation] : {std::pair{2, 5}, {3, 2}, {4, 5}}) {
    ToyTraining run{.world = world, .accumulation = accumulation};
    const test::Agreement bounds = test::agreement(run);
    const ToyCurves local = test::train(run);
    const ToyCurves want = test::train(sharded(run));
    EXPECT_NE(want.losses, local.losses) << text(run);  // or nothing is added up in another order
    EXPECT_LE(test::curve_distance(want.losses, local.losses), bounds.losses) << text(run);
    EXPECT_LE(test::relative_error(want.weights, {local.weights.begin(), local.weights.end()}),
              bounds.weights)
        << text(run);
    for (const std::string_view strategy : strategy_names()) {
      run.strategy = strategy;
      const ToyCurves got = test::train(sharded(run));
      EXPECT_EQ(got.losses, want.losses) << text(run);
      EXPECT_EQ(got.weights, want.weights) << text(run);
    }
  }
}

TEST(ShardedAccumulation, IsBitwiseTheSameInAnyOrderAndInSeveralGraphs) {
  for (const std::string_view strategy : strategy_names())
    for (const std::int64_t accumulation : {2, 20}) {
      const bool bf16 = accumulation == 2;
      const ToyTraining run = sharded({.world = 3,
                                       .strategy = std::string(strategy),
                                       .gather = bf16 ? "simple" : "pipelined",
                                       .accumulation = accumulation,
                                       .steps = 4,
                                       .nanochat_bf16 = bf16});
      expect_the_same_in_any_order(run, test::train(run));
    }
}

TEST(ShardedAccumulation, SeveralGraphsGiveTheSameCurve) {
  for (const std::int64_t accumulation : {10, 20})
    test::expect_toy_agreement(
        test::train(sharded({.world = 3, .accumulation = accumulation, .steps = 50})),
        std::to_string(accumulation) + " micro-steps");
}

}  // namespace
}  // namespace muo
