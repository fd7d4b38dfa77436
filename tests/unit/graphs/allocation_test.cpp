#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/host_kernels.h"
#include "support/counting_new.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

// Heap allocations of all ranks during three steps, replayed or eager.
std::int64_t allocations_of_steps(const std::string& strategy, bool graph, bool nanochat_bf16) {
  std::int64_t count = 0;
  test::ToyTraining training{
      .world = 3, .strategy = strategy, .graph = graph, .steps = 1, .nanochat_bf16 = nanochat_bf16};
  training.before_step = [&](RankContext& rank, RunState& state, int /*step*/) {
    const trainer::RunConfig config = test::toy_config(training);
    const Shape shape{config.step.accumulation, config.step.batch, config.model.seq_len};
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.numel()), 1);
    const auto copied = rank.device.make_event();
    const auto step = [&] {
      state.step.run(host_tensor(tokens.data(), shape), host_tensor(tokens.data(), shape), *copied);
    };
    step();  // first call: set-up of libraries
    rank.barrier.arrive();
    const std::int64_t before = test::allocations;
    rank.barrier.arrive();
    for (int i = 0; i < 3; ++i)
      step();
    rank.barrier.arrive();
    if (rank.rank == 0) count = test::allocations - before;
    rank.barrier.arrive();
  };
  test::train(training);
  return count;
}

void expect_none_in_a_replay(bool nanochat_bf16) {
  for (const std::string_view strategy : optim::strategy_names())
    EXPECT_EQ(allocations_of_steps(std::string(strategy), /*graph=*/true, nanochat_bf16), 0)
        << strategy;
}

TEST(StepAllocations, AReplayedStepAllocatesNothing) { expect_none_in_a_replay(false); }

TEST(StepAllocations, NorDoesOneInBF16) {
  if (describe_gemm_library().ends_with("bf16 products in bf16"))
    GTEST_SKIP()
        << "oneDNN allocates in each bf16 product; the test with suffix .fp32_only has its "
           "products in fp32";
  expect_none_in_a_replay(true);
}

// Checks the counter: eager work allocates its tasks.
TEST(StepAllocations, EagerWorkIsCounted) {
  EXPECT_GT(allocations_of_steps("balanced", /*graph=*/false, false), 0);
}

}  // namespace
}  // namespace muo::graphs
