// Every strategy at every world trains the same model: gates, fewer key-value than query heads,
// three layers for up to eight ranks.
#include <gtest/gtest.h>

#include <string>

#include "optim/sharding_plan.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo {
namespace {

using test::ToyCurves;
using test::ToyTraining;

// 168 rows divide among 2, 3, 4, 7 and 8 ranks.
ToyTraining nanochat(int world, std::string_view strategy = "balanced") {
  return {.world = world,
          .strategy = std::string(strategy),
          .steps = 50,
          .rows = 168,
          .nanochat = true};
}

class Strategies : public testing::TestWithParam<int> {};

// On the host at one world all add the same gradients in the same order, so they are bitwise equal;
// worlds are as far apart as rounding takes them in 50 steps.
TEST_P(Strategies, AgreeAfterFiftySteps) {
  static const ToyCurves alone = test::train(nanochat(1));
  static const test::Agreement bounds = test::agreement(nanochat(1));
  ASSERT_LT(bounds.weights, 1e-2);  // or the comparison says nothing
  const ToyCurves want = test::train(nanochat(GetParam()));
  EXPECT_LE(test::curve_distance(want.losses, alone.losses), bounds.losses);
  EXPECT_LE(test::relative_error(want.weights, {alone.weights.begin(), alone.weights.end()}),
            bounds.weights);
  for (const std::string_view strategy : strategy_names()) {
    const ToyCurves got = test::train(nanochat(GetParam(), strategy));
    EXPECT_EQ(got.losses, want.losses) << strategy;
    EXPECT_EQ(got.weights, want.weights) << strategy;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Strategies, testing::Values(1, 2, 3, 4, 7, 8));

}  // namespace
}  // namespace muo
