#include "optim/optimizer_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "optim/optimizer_options.h"
#include "support/drawn.h"
#include "support/errors.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

// The version and the strategy are independent.
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

// The schedule, computed independently in double, at every step.
TEST(OptimizerOptions, SetMomentumBetasAndTheirSchedule) {
  optim::OptimizerOptions options;
  options.momentum_start = 0.5;
  options.momentum = 0.8;
  options.momentum_end = 0.6;
  options.momentum_ramp = 7;
  options.warmdown_ratio = 0.4;
  options.muon_beta2 = 0.99;
  options.adam_beta1 = 0.7;
  options.adam_beta2 = 0.98;
  options.adam_eps = 1e-8;
  const HyperParameters hyper = optim::make_hyper_parameters(options, {}, 50);
  StepScalars scalars;
  for (scalars.step = 0; scalars.step < 60; ++scalars.step) {
    fill_step_scalars(hyper, scalars);
    const auto it = static_cast<double>(scalars.step);
    const double want = it < 7    ? 0.5 + 0.3 * it / 7
                        : it < 30 ? 0.8
                                  : 0.8 - 0.2 * std::min(1.0, (it - 30) / 20);
    EXPECT_NEAR(scalars.muon_momentum, want, 1e-7) << it;
    EXPECT_EQ(scalars.muon_look_ahead, scalars.muon_momentum);
    EXPECT_EQ(scalars.muon_beta2, 0.99F);
    for (const int group : {0, 1, 2, 3, 4, 5}) {
      EXPECT_EQ(scalars.adam[group].beta1, 0.7F);
      EXPECT_EQ(scalars.adam[group].beta2, 0.98F);
      EXPECT_EQ(scalars.adam[group].eps, 1e-8F);
    }
  }
  options.momentum = options.momentum_end = 0.95;  // constant
  options.momentum_ramp = 0;
  options.nesterov = false;
  const HyperParameters constant = optim::make_hyper_parameters(options, {}, 50);
  for (scalars.step = 0; scalars.step < 60; ++scalars.step) {
    fill_step_scalars(constant, scalars);
    EXPECT_EQ(scalars.muon_momentum, 0.95F);
    EXPECT_EQ(scalars.muon_look_ahead, 1.0F);
  }
}

TEST(OptimizerVersions, AnUnknownVersionIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(optim::optimizer_version("2025-10").name, "2025-10");
  EXPECT_THAT(message_of<InputError>([] { static_cast<void>(optim::optimizer_version("2024")); }),
              ::testing::HasSubstr("'2024' is unknown: give head, 2026-01, 2025-10"));
}

}  // namespace
}  // namespace muo::test
