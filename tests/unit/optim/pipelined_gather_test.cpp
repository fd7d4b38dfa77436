#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/drawn.h"
#include "support/errors.h"
#include "support/plans.h"
#include "support/sanitized.h"
#include "support/toy_step.h"

// Weights that are sent at the start of the next step, overlapped with its forward pass.
namespace muo::test {
namespace {

ToyRun toy(const std::vector<ParamSpec>& params, const optim::ShardingPlan& plan, int steps) {
  ToyRun run;
  run.world = plan.world;
  run.params = params;
  run.plan = plan;
  run.steps = steps;
  return run;
}

// Compares the weights that the forward pass reads in each step, final weights,
// state, and bytes sent.
void expect_the_simple_forms_numbers(ToyRun run) {
  const std::string what = run.plan.strategy + ", world " + std::to_string(run.world);
  const std::vector<ToyRank> want = run_toy(run);
  run.plan = pipelined(run.plan);
  const std::vector<ToyRank> got = run_toy(run);
  expect_bitwise_equal(got, want, what);
  for (std::size_t r = 0; r < want.size(); ++r) {
    EXPECT_EQ(got[r].sent_bytes, want[r].sent_bytes) << what;
    EXPECT_EQ(got[r].counts, want[r].counts) << what;
  }
  run.graph = false;
  expect_bitwise_equal(run_toy(run), want, what + ", eager");
  run.graph = true;
  run.random_order_seed = 1;
  expect_bitwise_equal(run_toy(run), want, what + ", in a random order");
}

TEST(PipelinedGather, IsBitwiseTheSimpleForm) {
  const std::vector<ParamSpec> params = toy_params();
  Drawn drawn(5);
  for (const int world : kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4})
    for (const optim::ShardingPlan& plan : all_plans(params, world))
      if (drawn.runs_next()) expect_the_simple_forms_numbers(toy(params, plan, kSanitized ? 3 : 5));
}

TEST(PipelinedGather, IsBitwiseTheSimpleFormOverManySteps) {
  const std::vector<ParamSpec> params = toy_params();
  Drawn drawn(5);
  for (const std::string_view strategy : optim::strategy_names())
    if (drawn.runs_next())
      expect_the_simple_forms_numbers(
          toy(params, optim::make_sharding_plan(params, 3, strategy), 25));
}

TEST(PipelinedGather, IsBitwiseTheSimpleFormInBf16) {
  constexpr auto kBF16 = DType::kBF16;
  const optim::NumberFormats wires{.gradient_wire = kBF16, .weight_wire = kBF16};
  Drawn drawn(5);
  for (const DType replica : {DType::kF32, kBF16}) {
    const std::vector<ParamSpec> params = toy_params(3, replica);
    for (const std::string_view strategy : optim::strategy_names())
      for (const int world : {2, 3})
        if (drawn.runs_next())
          expect_the_simple_forms_numbers(
              toy(params, optim::make_sharding_plan(params, world, strategy, wires), 4));
  }
}

TEST(PipelinedGather, InAnyOrderForwardSeesTheNewWeights) {
  const std::vector<ParamSpec> params = toy_params();
  ToyRun run = toy(params, optim::make_sharding_plan(params, 3, "balanced"), 4);
  const std::vector<ToyRank> want = run_toy(run);
  run.plan = pipelined(run.plan);
  for (std::uint64_t seed = 2; seed <= 9; ++seed) {
    run.random_order_seed = seed;
    expect_bitwise_equal(run_toy(run), want, "seed " + std::to_string(seed));
  }
}

// The counterpart of the tests above: without the wait, the race is detected.
TEST(PipelinedGather, AWeightThatIsReadBeforeItsWaitIsARace) {
  const std::vector<ParamSpec> params = toy_params();
  ToyRun run = toy(params, optim::make_sharding_plan(params, 2, "balanced"), 1);
  run.reads_too_early = true;
  EXPECT_NO_THROW(run_toy(run));
  run.plan = pipelined(run.plan);
  EXPECT_THAT(message_of<Error>([&] { run_toy(run); }),
              testing::AllOf(testing::HasSubstr("no event orders"), testing::HasSubstr("forward"),
                             testing::HasSubstr("all_gather")));
}

// A single rank gathers nothing; neither does a plan in which every rank computes everything.
TEST(PipelinedGather, LeavesNothingBehindIfNothingIsGathered) {
  const std::vector<ParamSpec> params = toy_params(1);
  const auto leaves = [&](int world, std::string_view strategy, optim::Gather gather) {
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, world, strategy, {}, gather);
    bool result = false;
    DeviceGroup({.world = world}).run([&](RankContext& rank) {
      TraceArena arena(rank.rank);
      const optim::ShardedStep step(rank, plan, params, arena);
      if (rank.rank == 0) result = step.leaves_replicas_behind();
    });
    return result;
  };
  EXPECT_FALSE(leaves(1, "balanced", optim::Gather::kPipelined));
  EXPECT_FALSE(leaves(2, "ddp", optim::Gather::kPipelined));
  EXPECT_FALSE(leaves(2, "balanced", optim::Gather::kSimple));
  EXPECT_TRUE(leaves(2, "balanced", optim::Gather::kPipelined));
}

}  // namespace
}  // namespace muo::test
