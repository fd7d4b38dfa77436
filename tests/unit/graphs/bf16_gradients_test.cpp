// --gradient-dtype bf16: gradients of bf16 weights are bf16 from backward to their reduction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "support/sanitized.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

ToyTraining fp32_gradients(ToyTraining run) {
  run.bf16_gradients = false;
  return run;
}

std::string text(const ToyTraining& run) {
  return run.strategy + " " + run.shard + ", world " + std::to_string(run.world) + ", " +
         std::to_string(run.accumulation) + " micro-steps";
}

// They are rounded by backward or for the wire; sums over ranks and micro-steps are fp32 in both.
TEST(BF16Gradients, AreBitwiseThoseThatAreRoundedOnTheirWay) {
  for (const int world : {2, 3, 5})
    for (const optim::Strategy& strategy : optim::strategy_list())
      for (const auto& [shard, name] : {std::pair{optim::Shard::kNone, "none"},
                                        {optim::Shard::kOptimizer, "optimizer"},
                                        {optim::Shard::kGradients, "gradients"},
                                        {optim::Shard::kWeights, "weights"}})
        for (const std::int64_t accumulation : {1, 2}) {
          const ToyTraining run{.world = world,
                                .strategy = std::string(strategy.name),
                                .shard = name,
                                .accumulation = accumulation,
                                .steps = 3,
                                .nanochat_bf16 = true,
                                .bf16_gradients = true};
          if (shard < strategy.least || shard > strategy.most) continue;
          if (accumulation > 1 && shard < optim::Shard::kGradients) continue;
          test::expect_bitwise(test::train(run), test::train(fp32_gradients(run)), text(run));
        }
}

TEST(BF16Gradients, AreTheSameInEveryForm) {
  for (const char* shard : {"optimizer", "gradients", "weights"}) {
    ToyTraining run{.world = 3,
                    .shard = shard,
                    .accumulation = std::string(shard) == "optimizer" ? 1 : 20,
                    .steps = test::kSanitized ? 2 : 3,
                    .nanochat_bf16 = true,
                    .bf16_gradients = true};
    const ToyCurves want = test::train(run);
    test::expect_bitwise_in_every_form(run, want, text(run));
    run.nan_between_steps = true;
    test::expect_bitwise(test::train(run), want, text(run) + ", NaN between steps");
  }
}

// Nothing is sent, and the update reads the gradients that backward wrote.
TEST(BF16Gradients, OfOneDeviceAreNearThoseOfFp32) {
  const ToyTraining run{.steps = 12, .nanochat_bf16 = true, .bf16_gradients = true};
  const ToyCurves got = test::train(run);
  const ToyCurves want = test::train(fp32_gradients(run));
  EXPECT_NE(got.losses, want.losses);
  EXPECT_LT(test::curve_distance(got.losses, want.losses), 0.02);
}

TEST(BF16Gradients, AreNotAddedTo) {
  for (const int world : {1, 2})
    EXPECT_THAT(test::message_of<Error>([&] {
                  test::train({.world = world,
                               .accumulation = 2,
                               .steps = 1,
                               .nanochat_bf16 = true,
                               .bf16_gradients = true});
                }),
                testing::HasSubstr("need fp32 gradients"));
}

}  // namespace
}  // namespace muo::graphs
