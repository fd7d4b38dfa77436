#include "optim/optimizer_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "support/drawn.h"
#include "support/errors.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

// What is computed, and who computes it, know nothing of each other.
TEST(OptimizerVersions, AreBitwiseTheSameUnderEveryStrategy) {
  Drawn drawn(3);
  for (const int world : {1, 2, 3, 4, 7, 8}) {
    if (!drawn.runs_next(world == 3)) continue;
    std::vector<std::vector<double>> results;
    for (const optim::OptimizerVersion& version : optim::optimizer_versions()) {
      std::vector<double> first;
      for (const std::string_view strategy : optim::strategy_names()) {
        ToyRun run;
        run.world = world;
        run.params = toy_params();
        run.plan = optim::make_sharding_plan(run.params, run.world, strategy);
        run.plan.version = &version;
        run.hyper = [&] { return toy_hyper(&version); };
        run.steps = 5;
        const std::vector<double> weights = flat(run_toy(run)[0].weights);
        if (first.empty()) first = weights;
        EXPECT_EQ(weights, first) << version.name << " under " << strategy << ", world " << world;
      }
      for (const std::vector<double>& other : results)
        EXPECT_NE(first, other) << version.name;
      results.push_back(first);
    }
  }
}

TEST(OptimizerVersions, AnUnknownOneIsRefusedWithTheKnown) {
  EXPECT_EQ(optim::optimizer_version("2025-10").name, "2025-10");
  EXPECT_THAT(message_of<InputError>([] { static_cast<void>(optim::optimizer_version("2024")); }),
              ::testing::HasSubstr("'2024' is unknown: give head, 2026-01, 2025-10"));
}

}  // namespace
}  // namespace muo::test
