// The whole training step on NCCL: on the SIMT tier with a stand-in for NCCL or, with
// MUO_TEST_BACKEND=cuda, on GPUs with NVIDIA's, a rank on each. With MUO_TEST_NCCL_RANKS=N every
// test has N ranks on one GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

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

const BackendPlugin& plugin() {
  static const LoadedPlugin loaded = on_gpu() ? load_cuda() : test::load_simt();
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  return *loaded.plugin;
}

std::optional<int> ranks_on_one_gpu() {
  const std::optional<std::string> ranks = test::environment("MUO_TEST_NCCL_RANKS");
  return ranks ? std::optional(std::stoi(*ranks)) : std::nullopt;
}

int ranks_for(int wanted) {
  return ranks_on_one_gpu().value_or(std::min(wanted, plugin().device_count()));
}

ToyCurves train_over_nccl(ToyTraining run, CommunicatorKind kind = CommunicatorKind::kNccl) {
  run.world = ranks_for(run.world);
  run.devices = {.plugin = &plugin(),
                 .ranks_per_device = ranks_on_one_gpu().value_or(1),
                 .communicator = kind,
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
  // The second graph has a loop of micro-steps.
  for (ToyTraining run : {ToyTraining{.world = 2, .rows = 8},
                          {.world = 2, .accumulation = 10, .rows = 40},
                          {.world = 8, .rows = 8}}) {
    run.steps = 2;
    const ToyCurves replayed = train_over_nccl(run);
    run.graph = false;
    const ToyCurves eager = train_over_nccl(run);
    EXPECT_EQ(eager.losses, replayed.losses) << run.world << ' ' << run.accumulation;
    EXPECT_EQ(eager.weights, replayed.weights) << run.world << ' ' << run.accumulation;
  }
}

TEST(NcclStep, ShardedWeightsAreBitwiseReplicas) {
  for (ToyTraining run : {ToyTraining{.world = 3, .strategy = "parallel", .rows = 24},
                          {.world = 8, .strategy = "layerwise", .rows = 16}}) {
    run.accumulation = run.steps = 2;
    run.shard = "gradients";
    const ToyCurves want = train_over_nccl(run);
    run.shard = "weights";
    const ToyCurves got = train_over_nccl(run);
    EXPECT_EQ(got.losses, want.losses) << run.strategy;
    EXPECT_EQ(got.weights, want.weights) << run.strategy;
  }
}

// The flush is eager work, on another communicator than the graph's.
TEST(NcclStep, APipelinedGatherIsBitwiseTheSimpleOne) {
  ToyTraining run{.world = 8, .gather = "simple", .steps = 3, .rows = 24};
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

// By reduce-scatters, all-reduces and reductions to an owner. NCCL adds fp32 in the order of its
// ring, which makes no difference to two ranks.
TEST(NcclStep, GradientsInBF16AreBitwiseThoseOfPeer) {
  for (const char* strategy : {"balanced", "ddp", "layerwise"}) {
    const ToyTraining run{
        .world = 2, .strategy = strategy, .steps = 1, .rows = 8, .nanochat_bf16 = true};
    const ToyCurves want = train_over_nccl(run, CommunicatorKind::kPeer);
    const ToyCurves got = train_over_nccl(run);
    EXPECT_EQ(got.losses, want.losses) << strategy;
    EXPECT_EQ(got.weights, want.weights) << strategy;
  }
}

}  // namespace
}  // namespace muo::graphs
