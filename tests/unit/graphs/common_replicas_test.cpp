// ReplicaAt::kCommon: ranks of a host that share their replica.
#include <gtest/gtest.h>

#include <string>

#include "support/drawn.h"
#include "support/sanitized.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

void expect_the_numbers_of_own_replicas(ToyTraining run, const std::string& what) {
  const ToyCurves want = test::train(run);
  run.replicas = "common";
  expect_bitwise_in_every_form(run, want, what);
}

TEST(CommonReplicas, GiveTheSameBits) {
  for (const int world : {2, 4})
    for (const char* gather : {"simple", "pipelined"})
      expect_the_numbers_of_own_replicas(
          {.world = world, .gather = gather, .steps = test::kSanitized ? 3 : 20},
          "world " + std::to_string(world) + ", " + gather);
}

TEST(CommonReplicas, GiveTheSameBitsInEveryStrategyAndFormat) {
  test::Drawn drawn(5);
  for (const std::string_view strategy : optim::strategy_names())
    for (const bool bf16 : {false, true}) {
      if (!drawn.runs_next()) continue;
      expect_the_numbers_of_own_replicas({.world = 3,
                                          .strategy = std::string(strategy),
                                          .accumulation = bf16 ? 1 : 2,
                                          .steps = 6,
                                          .nanochat_bf16 = bf16},
                                         std::string(strategy) + (bf16 ? ", bf16" : ""));
    }
}

TEST(CommonReplicas, GiveTheSameBitsInSeveralGraphs) {
  expect_the_numbers_of_own_replicas(
      {.world = 3, .shard = "gradients", .accumulation = 10, .steps = 6}, "accumulation 10");
}

}  // namespace
}  // namespace muo::graphs
