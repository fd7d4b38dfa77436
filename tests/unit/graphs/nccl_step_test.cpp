// The whole training step on NCCL: on the SIMT tier with a stand-in for NCCL or, with
// MUO_TEST_BACKEND=cuda, on a GPU with one rank on NVIDIA's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "runtime/plugin.h"
#include "support/environment.h"
#include "support/errors.h"
#include "support/kernel_stream.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

bool on_gpu() { return test::kernel_backend() == test::KernelBackend::kCuda; }

ToyCurves train_over_nccl(ToyTraining run) {
  static const LoadedPlugin loaded = on_gpu() ? load_cuda() : test::load_simt();
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  run.world = std::min(run.world, loaded.plugin->device_count());  // NCCL needs one GPU per rank
  run.devices = {.plugin = loaded.plugin,
                 .communicator = CommunicatorKind::kNccl,
                 .watch = test::patient_watch()};
  return test::train(run);
}

TEST(NcclStep, EveryStrategyFollowsTheHostsCurve) {
  for (const std::string_view strategy : optim::strategy_names())
    test::expect_toy_device_agreement(
        train_over_nccl({.world = 3, .strategy = std::string(strategy), .steps = 2}),
        std::string(strategy));
}

TEST(NcclStep, AReplayIsBitwiseTheSameCallsEagerly) {
  for (const std::int64_t accumulation : {1, 10}) {  // one graph, two graphs
    ToyTraining run{.world = 2, .accumulation = accumulation, .steps = 2};
    const ToyCurves replayed = train_over_nccl(run);
    run.graph = false;
    const ToyCurves eager = train_over_nccl(run);
    EXPECT_EQ(eager.losses, replayed.losses) << accumulation;
    EXPECT_EQ(eager.weights, replayed.weights) << accumulation;
  }
}

TEST(NcclStep, ShardedWeightsAreBitwiseReplicas) {
  for (const char* strategy : {"parallel", "layerwise"}) {
    ToyTraining run{
        .world = 3, .strategy = strategy, .shard = "gradients", .accumulation = 2, .steps = 2};
    const ToyCurves want = train_over_nccl(run);
    run.shard = "weights";
    const ToyCurves got = train_over_nccl(run);
    EXPECT_EQ(got.losses, want.losses) << strategy;
    EXPECT_EQ(got.weights, want.weights) << strategy;
  }
}

// The flush is eager work, on another communicator than the graph's.
TEST(NcclStep, APipelinedGatherIsBitwiseTheSimpleOne) {
  ToyTraining run{.world = 3, .gather = "simple", .steps = 3};
  const ToyCurves want = train_over_nccl(run);
  run.gather = "pipelined";
  const ToyCurves got = train_over_nccl(run);
  run.before_step = [](RankContext& /*rank*/, RunState& state, int /*step*/) {
    state.verify_sync();
  };
  const ToyCurves flushed = train_over_nccl(run);
  for (const ToyCurves* curves : {&got, &flushed}) {
    EXPECT_EQ(curves->losses, want.losses);
    EXPECT_EQ(curves->weights, want.weights);
  }
}

TEST(NcclStep, GradientsInBF16AreRefusedBeforeAnyStep) {
  if (on_gpu()) GTEST_SKIP() << "one rank sends no gradients";
  EXPECT_THAT(test::message_of<InputError>(
                  [] { train_over_nccl({.world = 2, .steps = 1, .nanochat_bf16 = true}); }),
              testing::HasSubstr("--gradient-wire fp32, or --comm peer"));
}

}  // namespace
}  // namespace muo::graphs
