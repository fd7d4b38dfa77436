#include "optim/optimizer_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "support/errors.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

// What is computed, and who computes it, know nothing of each other.
TEST(OptimizerVersions, AreBitwiseTheSameUnderEveryStrategy) {
  std::vector<std::vector<double>> results;
  for (const OptimizerVersion& version : optimizer_versions()) {
    std::vector<double> first;
    for (const std::string_view strategy : strategy_names()) {
      ToyRun run;
      run.world = 3;
      run.params = toy_params();
      run.plan = make_sharding_plan(run.params, run.world, strategy);
      run.plan.version = &version;
      run.hyper = [&] { return toy_hyper(&version); };
      run.steps = 5;
      const std::vector<double> weights = flat(run_toy(run)[0].weights);
      if (first.empty()) first = weights;
      EXPECT_EQ(weights, first) << version.name << " under " << strategy;
    }
    for (const std::vector<double>& other : results)
      EXPECT_NE(first, other) << version.name;
    results.push_back(first);
  }
}

// Nor does how it is computed. One rank and several, where it is as where few own much.
TEST(NewtonSchulzForms, AreBitwiseTheSameUnderEveryStrategy) {
  std::vector<std::vector<double>> results;
  for (const NewtonSchulzForm& form : newton_schulz_forms()) {
    for (const int world : {1, 2, 3, 4}) {
      std::vector<double> first;
      for (const std::string_view strategy : strategy_names()) {
        ToyRun run;
        run.world = world;
        run.params = toy_params(2);
        run.plan = make_sharding_plan(run.params, world, strategy, {}, Gather::kSimple, form);
        run.steps = 2;
        const std::vector<double> weights = flat(run_toy(run)[0].weights);
        if (first.empty()) first = weights;
        EXPECT_EQ(weights, first) << form.name << ", world " << world << ", " << strategy;
      }
      if (world == 1) results.push_back(first);
    }
    for (std::size_t i = 0; i + 1 < results.size() && !form.merged; ++i)  // transposed, they may be
      EXPECT_NE(results.back(), results[i]) << form.name << " is form " << i;
  }
}

TEST(OptimizerVersions, AnUnknownOneIsRefusedWithTheKnown) {
  EXPECT_EQ(optimizer_version("2025-10").name, "2025-10");
  EXPECT_THAT(message_of<InputError>([] { static_cast<void>(optimizer_version("2024")); }),
              ::testing::HasSubstr("'2024' is unknown: give head, 2026-01, 2025-10"));
}

}  // namespace
}  // namespace muo::test
