// Every strategy at every world trains the same model: with gates, fewer key-value than query
// heads, and three layers for up to eight ranks.
#include <gtest/gtest.h>

#include <string>

#include "optim/sharding_plan.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

// 168 rows are divisible by 2, 3, 4, 7 and 8 ranks.
ToyTraining training(int world, int steps, std::string_view strategy = "balanced") {
  return {.world = world,
          .strategy = std::string(strategy),
          .steps = steps,
          .rows = 168,
          .gates = true};
}

// On the host, for a given world, all strategies add the same gradients in the same order, so they
// are bitwise equal, which fewer steps show; runs of different worlds differ by rounding.
TEST(Strategies, AgreeAfterFiftySteps) {
  constexpr int kSteps = 50, kFewer = 12;
  const ToyCurves alone = test::train(training(1, kSteps));
  const test::Agreement bounds = test::agreement(training(1, kSteps));
  ASSERT_LT(bounds.weights, 1e-3);  // so that the comparison is meaningful
  for (const int world : {1, 2, 3, 4, 7, 8}) {
    SCOPED_TRACE("world " + std::to_string(world));
    const ToyCurves got = test::train(training(world, kSteps));
    EXPECT_LE(test::curve_distance(got.losses, alone.losses), bounds.losses);
    EXPECT_LE(test::relative_error(got.weights, {alone.weights.begin(), alone.weights.end()}),
              bounds.weights);
    const ToyCurves want = test::train(training(world, kFewer));
    for (const std::string_view strategy : optim::strategy_names()) {
      if (strategy == "balanced") continue;
      const ToyCurves other = test::train(training(world, kFewer, strategy));
      EXPECT_EQ(other.losses, want.losses) << strategy;
      EXPECT_EQ(other.weights, want.weights) << strategy;
    }
  }
}

// Rounding of bf16 state depends on the element, not on its holder; masters are split in two parts.
TEST(Strategies, AgreeWithLeanState) {
  for (const bool bf16 : {false, true}) {
    ToyTraining run{.world = 3, .steps = 8, .nanochat_bf16 = bf16, .lean = true};
    const ToyCurves want = test::train(run);
    ToyTraining wide = run;
    wide.lean = false;
    const ToyCurves other = test::train(wide);
    EXPECT_NE(want.losses, other.losses);
    EXPECT_LT(test::curve_distance(want.losses, other.losses), 0.05);
    for (const std::string_view strategy : optim::strategy_names()) {
      run.strategy = strategy;
      const ToyCurves got = test::train(run);
      EXPECT_EQ(got.losses, want.losses) << strategy;
      EXPECT_EQ(got.weights, want.weights) << strategy;
    }
    run.strategy = "balanced";
    test::expect_bitwise_in_every_form(run, want, "balanced");
    run.gather = "simple";
    test::expect_bitwise(test::train(run), want, "simple gather");
    run.replicas = "common";
    test::expect_bitwise(test::train(run), want, "common replicas");
  }
}

}  // namespace
}  // namespace muo::graphs
