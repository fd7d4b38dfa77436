#include "graphs/step_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/sanitized.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

constexpr int kSteps = 100;

const ToyCurves& reference() { return test::toy_reference(kSteps); }

TEST(StepGraph, Learns) {
  EXPECT_LT(reference().losses.back(), 0.6 * reference().losses.front());
  EXPECT_NEAR(reference().losses.front(), std::log(61.0),
              0.01);  // lm_head starts near zero
}

TEST(StepGraph, EveryWorldGivesTheSameCurve) {
  for (const int world : {2, 3, 4, 5})
    test::expect_toy_agreement(test::train({.world = world, .steps = kSteps}),
                               "world " + std::to_string(world));
}

TEST(StepGraph, AccumulationGivesTheSameCurve) {
  for (const std::int64_t accumulation : {5, 10, 20})  // unrolled; loops
    for (const int world : {1, 3})
      test::expect_toy_agreement(
          test::train({.world = world, .accumulation = accumulation, .steps = kSteps}),
          "accumulation " + std::to_string(accumulation) + ", world " + std::to_string(world));
}

// Unrolled, 20 micro-steps are an opening, a middle and a closing graph; 10 have no middle one.
TEST(StepGraph, ALoopOfMicroStepsIsBitwiseTheUnrolledStep) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const std::int64_t accumulation : {1, 2, 10, 20}) {
      const bool few = (strategy == "balanced" && accumulation == 10) ||
                       (strategy == "parallel" && accumulation == 2);
      if (test::kSanitized && !few) continue;
      ToyTraining run{.world = 3,
                      .strategy = std::string(strategy),
                      .accumulation = accumulation,
                      .steps = test::kSanitized ? 3 : 6,
                      .micro_steps = MicroSteps::kUnrolled,
                      .nanochat_bf16 = accumulation < 20,
                      .lean = accumulation == 2};
      const ToyCurves want = test::train(run);
      run.micro_steps = MicroSteps::kLoop;
      test::expect_bitwise_in_every_form(
          run, want, run.strategy + ", " + std::to_string(accumulation) + " micro-steps");
    }
}

// One capture serves any number of micro-steps of the same rows, one included.
TEST(StepGraph, ALoopMakesAnyNumberOfMicroStepsWithoutAnotherCapture) {
  for (const std::int64_t count : {1, 4}) {
    ToyTraining run{.world = 2,
                    .accumulation = count,
                    .steps = 4,
                    .micro_steps = MicroSteps::kLoop,
                    .rows = 10 * count};
    const ToyCurves want = test::train(run);
    run.accumulation = 6;
    run.rows = 60;
    run.ramp.assign(4, count);
    test::expect_bitwise_in_every_form(run, want, std::to_string(count) + " micro-steps of 6");
  }
  ToyTraining run{.world = 2,
                  .accumulation = 6,
                  .steps = 5,
                  .micro_steps = MicroSteps::kLoop,
                  .ramp = {1, 1, 4, 2, 6}};
  const ToyCurves want = test::train(run);
  run.accumulation = 12;
  run.rows = 120;
  test::expect_bitwise_in_every_form(run, want, "a ramp");
  run.ramp = {1, 1, 4, 2, 5};
  EXPECT_NE(test::train(run).losses, want.losses);
}

// Unrolled steps of each size have graphs of their own, which share the memory of the largest.
TEST(StepGraph, UnrolledStepsMayHaveSeveralSizes) {
  for (const char* shard : {"optimizer", "gradients", "weights"})
    for (const std::int64_t count : {1, 9}) {
      ToyTraining run{.world = 2,
                      .strategy = "parallel",
                      .shard = shard,
                      .accumulation = count,
                      .steps = 3,
                      .micro_steps = MicroSteps::kUnrolled,
                      .rows = 4 * count};
      const ToyCurves want = test::train(run);
      run.accumulation = 18;
      run.rows = 72;
      run.ramp.assign(3, count);
      test::expect_bitwise_in_every_form(run, want,
                                         concat(shard, ", ", count, " micro-steps of 18"));
      run.ramp.back() = 18;
      EXPECT_NE(test::train(run).losses, want.losses);
    }
}

// The bound is sensitive: a run with another learning rate, or another seed of the data, exceeds it
// by far.
TEST(StepGraph, TheBoundTellsRunsApart) {
  ToyTraining other{.steps = kSteps};
  other.before_step = [](RankContext&, RunState& state, int step) {
    if (step == 0) state.update.hyper().as_struct<HyperParameters>()->matrix_lr *= 1.001;
  };
  EXPECT_GT(test::curve_distance(test::train(other).losses, reference().losses),
            test::toy_bounds(kSteps).losses);
}

TEST(StepGraph, TheSameRunTwiceIsBitwiseEqual) {
  for (const int world : {1, 3}) {
    const ToyCurves a = test::train({.world = world});
    const ToyCurves b = test::train({.world = world});
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.grad_norms, b.grad_norms);
    EXPECT_EQ(a.weights, b.weights);
  }
}

TEST(StepGraph, ReplayAndEagerWorkAreBitwiseEqual) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const std::int64_t accumulation : {1, 20}) {
      ToyTraining run{.world = 3, .strategy = std::string(strategy), .accumulation = accumulation};
      if (test::kSanitized) run.steps = 2;
      if (test::kSanitized && (accumulation > 1) != (strategy == "balanced")) continue;
      const ToyCurves replayed = test::train(run);
      run.graph = false;
      const ToyCurves eager = test::train(run);
      EXPECT_EQ(replayed.losses, eager.losses) << strategy;
      EXPECT_EQ(replayed.weights, eager.weights) << strategy;
    }
}

TEST(StepGraph, AnyTopologicalOrderIsBitwiseEqual) {
  ToyTraining run{.world = 3, .accumulation = 2, .steps = 10};
  const ToyCurves in_order = test::train(run);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    run.random_order = seed;
    const ToyCurves shuffled = test::train(run);
    EXPECT_EQ(in_order.losses, shuffled.losses);
    EXPECT_EQ(in_order.weights, shuffled.weights);
  }
}

// Side streams and all extras at once: a forgotten event would show in some order.
TEST(StepGraph, NanochatInBf16IsBitwiseEqualEagerAndInAnyOrder) {
  ToyTraining run{.world = 2, .steps = 6, .nanochat_bf16 = true};
  const ToyCurves want = test::train(run);
  run.graph = false;
  EXPECT_EQ(test::train(run).losses, want.losses);
  run.graph = true;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    run.random_order = seed;
    const ToyCurves got = test::train(run);
    EXPECT_EQ(got.losses, want.losses) << "seed " << seed;
    EXPECT_EQ(got.weights, want.weights) << "seed " << seed;
  }
  run.accumulation = 10;  // a loop
  EXPECT_NEAR(test::train(run).losses.back(), want.losses.back(), 0.02);
}

TEST(StepGraph, NothingIsAllocatedAfterStartUp) {
  EXPECT_EQ(test::train({.world = 2, .steps = 5}).allocations_while_running, 0);
}

// The initial weights are those of one rank, for every world and strategy.
TEST(StepGraph, InitialWeightsDoNotDependOnTheWorld) {
  const ToyCurves one = test::train({.steps = 0});
  for (const int world : {2, 5})
    for (const std::string_view strategy : optim::strategy_names())
      EXPECT_EQ(
          test::train({.world = world, .strategy = std::string(strategy), .steps = 0}).weights,
          one.weights);
}

TEST(StepGraph, ANonFiniteGradientOnOneRankCommitsNowhereAndTheRunGoesOn) {
  std::vector<float> before;
  // With Gather::kPipelined, the gather would repair the replica before it is read.
  ToyTraining run{.world = 3, .gather = "simple", .steps = 4};
  run.before_step = [](RankContext& rank, RunState& state, int step) {
    // A weight that is infinite for this rank only, in one step: its loss is not finite.
    static thread_local float saved;
    float* weight = state.weights[0].as<float>();
    if (rank.rank != 1) return;
    if (step == 2) {
      saved = weight[5];
      weight[5] = std::numeric_limits<float>::infinity();
    } else if (step == 3) {
      weight[5] = saved;
    }
  };
  const ToyCurves result = test::train(run);
  EXPECT_EQ(result.committed, (std::vector<std::int32_t>{1, 1, 0, 1}));
  EXPECT_TRUE(std::isfinite(result.losses[3]));
  for (const float w : result.weights)
    ASSERT_TRUE(std::isfinite(w));
}

TEST(StepGraph, VerifySyncNamesTheTensorAndTheRank) {
  ToyTraining run{.world = 3, .steps = 1};
  run.before_step = [](RankContext& rank, RunState& state, int) {
    if (rank.rank == 2) {
      float* w = state.weights[3].as<float>();
      w[7] = std::nextafter(w[7], 1.0F);
    }
    state.verify_sync();
  };
  try {
    test::train(run);
    FAIL() << "a replica that differs by one ulp was not noticed";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("transformer.h.0.attn.c_v.weight"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
  }
}

TEST(StepGraph, ARankThatFailsEndsTheRunWithItsOwnMessage) {
  for (const bool graph : {true, false}) {
    ToyTraining run{.world = 4, .graph = graph};
    run.before_step = [](RankContext& rank, RunState&, int step) {
      if (rank.rank == 2 && step == 3) throw Error("the disk of rank two is gone");
    };
    const auto start = std::chrono::steady_clock::now();
    try {
      test::train(run);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "rank 2: the disk of rank two is gone");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST(StepGraph, StepsThatWereGivenUpBeforeAreBitwiseTheSame) {
  struct Case {
    optim::Shard shard;
    const char* name;
    std::int64_t accumulation;
    const char* replicas = "own";
  };
  int given_up = 0;
  for (const optim::Strategy& strategy : optim::strategy_list())
    for (const auto& [shard, name, accumulation, replicas] :
         {Case{optim::Shard::kOptimizer, "optimizer", 1, "common"},
          Case{optim::Shard::kOptimizer, "optimizer", 20},
          Case{optim::Shard::kGradients, "gradients", 5},
          Case{optim::Shard::kWeights, "weights", 2}}) {
      if (strategy.most < shard) continue;
      if (test::kSanitized && accumulation == 20 && strategy.name != "balanced") continue;
      ToyTraining run{.world = 3,
                      .strategy = std::string(strategy.name),
                      .shard = name,
                      .replicas = replicas,
                      .accumulation = accumulation,
                      .steps = test::kSanitized ? 2 : 5,
                      .nanochat_bf16 = accumulation == 20,
                      .lean = accumulation == 20};
      const ToyCurves want = test::train(run);
      run.interrupted = true;
      if (accumulation < 20) run.random_order = 1;
      const ToyCurves got = test::train(run);
      test::expect_bitwise(got, want, run.strategy + ", " + name);
      given_up += got.given_up;
    }
  EXPECT_GT(given_up, 10);
}

TEST(StepGraph, OneBranchIsBitwiseThree) {
  for (const char* strategy : {"balanced", "stacked", "block_cyclic"})
    for (const std::int64_t accumulation : {1, 10}) {
      ToyTraining run{.world = 3, .strategy = strategy, .accumulation = accumulation, .steps = 3};
      const ToyCurves want = test::train(run);
      run.devices.branches = Branches::kOne;
      test::expect_bitwise_in_every_form(run, want, strategy);
    }
}

}  // namespace
}  // namespace muo::graphs
