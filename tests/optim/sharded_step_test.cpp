#include "optim/sharded_step.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/toy_step.h"
#include "support/tolerance.h"

namespace muo::test {
namespace {

ToyRun toy(int world, std::string_view strategy, int steps) {
  ToyRun run;
  run.world = world;
  run.params = toy_params();
  run.plan = make_sharding_plan(run.params, world, strategy);
  run.steps = steps;
  return run;
}

TEST(ShardedStep, WorldsAndStrategiesGiveTheSameWeights) {
  const ToyRun single = toy(1, "balanced", 20);
  const std::vector<double> want = flat(run_toy(single)[0].weights);
  // How far rounding alone takes a run: one ulp in the gradients of every step.
  std::vector<double> controls;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    ToyRun control = single;
    control.perturb = seed;
    controls.push_back(relative_error(flat(run_toy(control)[0].weights), want));
  }
  std::sort(controls.begin(), controls.end());
  const double limit = 4.0 * 0.5 * (controls[3] + controls[4]);
  ASSERT_GT(limit, 0.0);
  ASSERT_LT(limit, 1e-3);
  for (const std::string_view strategy : strategy_names())
    for (int world = 1; world <= 5; ++world) {
      const std::vector<ToyRank> ranks = run_toy(toy(world, strategy, 20));
      EXPECT_LE(relative_error(flat(ranks[0].weights), want), limit)
          << strategy << ", world " << world;
      for (const ToyRank& rank : ranks)
        EXPECT_EQ(rank.weights, ranks[0].weights) << strategy << ", world " << world;
    }
}

}  // namespace
}  // namespace muo::test
