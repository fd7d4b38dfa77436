// The whole training step on a plug-in: the SIMT tier or, with MUO_TEST_BACKEND=cuda, a GPU with as
// many virtual ranks as a test has ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "graphs/capture.h"
#include "kernels/cast.h"
#include "runtime/device_group.h"
#include "runtime/graph_trace.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/plugin.h"
#include "runtime/timeline.h"
#include "support/environment.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/kernel_stream.h"
#include "support/sum_order.h"
#include "support/tolerance.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

using test::ToyCurves;
using test::ToyTraining;

// kThree if each branch has a hardware queue of its own, as only then branches can race; the
// default for ranks that share a GPU whose driver assigns queues freely.
std::optional<Branches> tested_branches() {
  const bool separate = test::kernel_backend() != test::KernelBackend::kCuda &&
                        !test::environment("CUDA_STAND_IN_QUEUES");
  return separate ? std::optional(Branches::kThree) : std::nullopt;
}

ToyTraining on_device(ToyTraining run) {
  static const LoadedPlugin loaded =
      test::kernel_backend() == test::KernelBackend::kCuda ? load_cuda() : test::load_simt();
  if (loaded.plugin == nullptr) throw Error(loaded.missing);
  run.devices = {.branches = tested_branches(),
                 .plugin = loaded.plugin,
                 .ranks_per_device = run.world,
                 .communicator = CommunicatorKind::kPeer,
                 .watch = test::patient_watch()};
  return run;
}
ToyCurves device_train(const ToyTraining& run) { return test::train(on_device(run)); }

// Like a GPU's library, the SIMT tier here sums products in another order than the host, which is
// none of those from which the bound was computed.
void expect_the_hosts_curve(const ToyTraining& run, const std::string& what) {
  const auto got = [&] {
    const test::Products products(test::SumOrder{.parts = 5, .interleaved = true});
    return device_train(run);
  }();
  test::expect_toy_device_agreement(got, what);
}

TEST(DeviceStep, FollowsTheHostsCurve) { expect_the_hosts_curve({.steps = 12}, "one rank"); }

TEST(DeviceStep, DrawsTheHostsInitialWeightsBitForBit) {
  for (const bool bf16 : {false, true}) {
    const ToyTraining run{.world = 2, .steps = 0, .nanochat_bf16 = bf16};
    EXPECT_EQ(device_train(run).weights, test::train(run).weights);
  }
}

TEST(DeviceStep, TwoVirtualRanksFollowTheHostsCurve) {
  expect_the_hosts_curve({.world = 2, .steps = 12}, "world 2");
}

TEST(DeviceStep, FourVirtualRanksFollowTheHostsCurve) {
  expect_the_hosts_curve({.world = 4, .steps = 12}, "world 4");
}

TEST(DeviceStep, EveryStrategyFollowsTheHostsCurve) {
  for (const std::string_view strategy : optim::strategy_names())
    expect_the_hosts_curve({.world = 2, .strategy = std::string(strategy), .steps = 2},
                           std::string(strategy));
}

// Host runs with a learning rate that is 1% off, or with weight gradients that lack one of their
// 720 terms, exceed the bound, in losses and in weights.
TEST(DeviceStep, TheBoundRefusesErrors) {
  constexpr int kSteps = 12;
  const test::Agreement bounds = test::toy_device_bounds(kSteps);
  const ToyCurves& right = test::toy_reference(kSteps);
  const auto expect_refused = [&](const ToyCurves& wrong, const std::string& what) {
    EXPECT_GT(test::curve_distance(wrong.losses, right.losses), 2 * bounds.losses) << what;
    EXPECT_GT(test::relative_error(wrong.weights, {right.weights.begin(), right.weights.end()}),
              2 * bounds.weights)
        << what;
  };
  ToyTraining run{.steps = kSteps};
  {
    const test::Products products([](const GemmArgs& args) {
      GemmArgs wrong = args;
      if (args.transpose_a && args.a.shape[0] == test::kTrainingRows * test::kTrainingSeqLen) {
        wrong.a = args.a.rows(1, args.a.shape[0]);
        wrong.b = args.b.rows(1, args.b.shape[0]);
      }
      host::gemm(wrong);
    });
    expect_refused(test::train(run), "a term is missing");
  }
  run.before_step = [](RankContext& /*rank*/, RunState& state, int step) {
    if (step == 0) state.update.hyper().as_struct<HyperParameters>()->matrix_lr *= 1.01;
  };
  expect_refused(test::train(run), "another learning rate");
}

TEST(DeviceStep, AReplayIsBitwiseTheSameCallsEagerly) {
  for (const std::int64_t accumulation : {1, 10}) {  // one graph, two graphs
    ToyTraining run{.world = 2, .accumulation = accumulation, .steps = 2};
    const ToyCurves replayed = device_train(run);
    run.graph = false;
    expect_bitwise(device_train(run), replayed, "accumulation " + std::to_string(accumulation));
  }
}

// Kernels read each other's memory: the owner commits to memory from which its peers have gathered,
// and between steps the masters are published eagerly.
TEST(DeviceStep, APipelinedGatherIsBitwiseTheSimpleOne) {
  for (const bool bf16 : {false, true}) {
    ToyTraining run{.world = bf16 ? 2 : 3,
                    .strategy = bf16 ? "stacked" : "balanced",
                    .gather = "simple",
                    .steps = 3,
                    .nanochat_bf16 = bf16};
    const ToyCurves want = device_train(run);
    run.gather = "pipelined";
    run.before_step = [](RankContext& /*rank*/, RunState& state, int step) {
      if (step == 2) state.verify_sync();
    };
    expect_bitwise(device_train(run), want, bf16 ? "bf16" : "fp32");
  }
}

// Passes gather each layer from peers' memory into slots that are reused. In one branch, as the
// gathers of each micro-step would need more queues than a GPU has.
ToyCurves train_in_one_branch(ToyTraining run) {
  run = on_device(run);
  run.devices.branches = Branches::kOne;
  return test::train(run);
}
TEST(DeviceStep, ShardedWeightsAreBitwiseReplicas) {
  for (const int world : {2, 4}) {
    const std::string strategy = world == 2 ? "balanced" : "parallel";
    ToyTraining run{.world = world,
                    .strategy = strategy,
                    .shard = "gradients",
                    .accumulation = world == 2 ? 10 : 1,
                    .steps = 2};
    const ToyCurves replicas = train_in_one_branch(run);
    run.shard = "weights";
    run.recompute = {.blocks = 2, .mlps = 1};
    run.nan_between_steps = true;
    const ToyCurves sharded = train_in_one_branch(run);
    EXPECT_EQ(sharded.losses, replicas.losses) << strategy;
    EXPECT_EQ(sharded.weights, replicas.weights) << strategy;
    run.nan_between_steps = false;
    run.graph = false;
    expect_bitwise(train_in_one_branch(run), sharded, strategy + ", eager");
  }
}

TEST(DeviceStep, ShardedWeightsFollowTheHostsCurve) {
  const test::Products products(test::SumOrder{.parts = 5, .interleaved = true});
  test::expect_toy_device_agreement(
      train_in_one_branch({.world = 4, .strategy = "parallel", .shard = "weights", .steps = 2}),
      "world 4");
}

// A conditional node; its body holds side streams and, in bf16, all extras.
TEST(DeviceStep, ALoopOfMicroStepsIsBitwiseTheUnrolledStep) {
  for (const bool bf16 : {false, true}) {
    ToyTraining run{.world = 2,
                    .accumulation = 5,
                    .steps = 2,
                    .micro_steps = graphs::MicroSteps::kUnrolled,
                    .nanochat_bf16 = bf16,
                    .lean = bf16};
    const ToyCurves want = device_train(run);
    run.micro_steps = graphs::MicroSteps::kLoop;
    run.nan_between_steps = true;
    expect_bitwise(device_train(run), want, bf16 ? "bf16" : "fp32");
    if (bf16) continue;
    run.graph = false;
    expect_bitwise(device_train(run), want, "fp32, eager");
  }
}

TEST(DeviceStep, TheSameRunTwiceIsBitwiseEqual) {
  const ToyTraining run{.world = 2, .steps = 2};
  expect_bitwise(device_train(run), device_train(run), "fp32");
}

// Interrupted before a launch; no rank waits for another's collectives.
TEST(DeviceStep, StepsThatWereGivenUpBeforeAreBitwiseTheSame) {
  for (const char* const shard : {"optimizer", "weights"}) {
    ToyTraining run{.world = 2, .shard = shard, .accumulation = 30, .steps = 2};
    const ToyCurves want = train_in_one_branch(run);
    run.interrupted = true;
    const ToyCurves got = train_in_one_branch(run);
    test::expect_bitwise(got, want, shard);
    EXPECT_GE(got.given_up, run.steps) << shard;
  }
}

// GPU memory contains old data at first.
TEST(DeviceStep, ReadsNothingThatTheStepHasNotWritten) {
  for (const bool bf16 : {false, true}) {
    ToyTraining run{.world = 2, .steps = 2, .nanochat_bf16 = bf16};
    const ToyCurves want = device_train(run);
    run.nan_between_steps = true;
    expect_bitwise(device_train(run), want, bf16 ? "bf16" : "fp32");
  }
}

TEST(DeviceStep, NanochatInBf16IsBitwiseEqualEagerAndNearTheHost) {
  for (const bool lean : {false, true}) {
    ToyTraining run{
        .world = 2, .steps = 2, .nanochat_bf16 = true, .lean = lean, .bf16_gradients = lean};
    const ToyCurves replayed = device_train(run);
    run.graph = false;
    expect_bitwise(device_train(run), replayed, lean ? "lean" : "bf16");
    EXPECT_NEAR(replayed.losses.back(), test::train(run).losses.back(), 0.02);
  }
}

// The update reads the gradients that backward wrote.
TEST(DeviceStep, GradientsOfBf16OfOneRankAreNearTheHosts) {
  const ToyTraining run{.steps = 2, .nanochat_bf16 = true, .bf16_gradients = true};
  EXPECT_NEAR(device_train(run).losses.back(), test::train(run).losses.back(), 0.02);
}

// Its memory is freed by the program while its peer is in a collective, which must not access it.
TEST(DeviceStep, ARankThatFailsEndsTheRunWithItsOwnMessage) {
  ToyTraining run{.world = 2, .steps = 2};
  run.before_step = [](RankContext& rank, RunState& /*state*/, int step) {
    if (rank.rank == 1 && step == 1) throw Error("the card is loose");
  };
  EXPECT_EQ(test::message_of<Error>([&] { device_train(run); }), "rank 1: the card is loose");
}

TEST(DeviceStep, OneBranchIsBitwiseThree) {
  ToyTraining run = on_device({.world = 2, .steps = 2});
  run.devices.branches = Branches::kThree;
  const ToyCurves want = test::train(run);
  run.devices.branches = Branches::kOne;
  expect_bitwise(test::train(run), want, "one branch");
}

// State of a warm-up that records which collectives take part.
class WarmedUp {
 public:
  WarmedUp(RankContext& rank, Tensor values) : rank_(rank), values_(values) {}
  void warm_up() {
    const std::int64_t before = rank_.communicator.bytes_sent();
    // The ranks make different numbers of calls: without muting, rank 0 would wait for a second
    // call of rank 1.
    const int calls = sent.empty() && rank_.rank == 0 ? 2 : 1;
    for (int i = 0; i < calls; ++i)
      rank_.communicator.all_reduce(rank_.compute, 1, values_, values_);
    rank_.wait(rank_.compute);
    sent.push_back(rank_.communicator.bytes_sent() - before);
  }
  void capture() { ++captures; }

  std::vector<std::int64_t> sent;  // by pass
  int captures = 0;

 private:
  RankContext& rank_;
  Tensor values_;
};

TEST(DeviceStep, TheFirstPassOfAWarmUpHasNoCollectives) {
  GroupOptions options = on_device({.world = 2}).devices;
  options.world = 2;
  DeviceGroup group(options);
  group.run([](RankContext& rank) {
    const auto memory = rank.device.allocate(64, "values");
    PlannedArena arena(rank.device, {.specs = {}, .offsets = {}, .bytes = 256});
    WarmedUp state(rank, {memory->data(), {4}, DType::kF32, rank.rank});
    warm_up_and_capture(rank, arena, state);
    EXPECT_THAT(state.sent, testing::ElementsAre(0, testing::Gt(0)));
    EXPECT_EQ(state.captures, 1);
    warm_up_and_capture(rank, arena, state, /*capture=*/false);
    EXPECT_EQ(state.sent.size(), 4U);
    EXPECT_EQ(state.captures, 1);
  });
}

// Loading a kernel may wait for the whole GPU, and so for a collective that waits for the loading
// rank: all kernels must be loaded before any rank's collective runs.
TEST(DeviceStep, AKernelsFirstUseBesideACollectiveDoesNotWaitForIt) {
  const ToyTraining on_gpu = on_device({.world = 2});
  DeviceGroup group({.world = 2,
                     .plugin = on_gpu.devices.plugin,
                     .ranks_per_device = 2,
                     .communicator = CommunicatorKind::kPeer});
  std::atomic<bool> launched = false;
  group.run([&](RankContext& rank) {
    const auto memory = rank.device.allocate(64, "values");
    const Tensor sums{memory->data(), {8}, DType::kF32, rank.rank};
    const Tensor rounded{memory->data() + 32, {8}, DType::kBF16, rank.rank};
    const auto graph =
        rank.comm.capture([&] { rank.communicator.all_reduce(rank.comm, 1, sums, sums); });
    rank.barrier.arrive();
    if (rank.rank == 1) {
      EXPECT_TRUE(test::eventually([&] { return launched.load(); }));
      cast(rank.compute, {.y = rounded, .x = sums});
      rank.compute.synchronize();
    }
    rank.comm.launch(*graph);
    launched = true;
    rank.comm.synchronize();
    rank.communicator.check();
  });
}

TEST(DeviceStep, NothingIsAllocatedAfterStartUp) {
  EXPECT_EQ(device_train({.world = 2, .steps = 2}).allocations_while_running, 0);
}

// Describes a node by everything but the addresses of its tensors.
std::string text_of(const GraphTrace& trace, const GraphTrace::Node& node) {
  const NodeWork work = work_of(node);
  std::string out = concat(path_of(trace, node), ": ", node.name, " ", work.shape, " ",
                           name_of(work.dtype), " ", work.flops, " ", work.bytes, " on ",
                           lane_of(trace.streams[static_cast<std::size_t>(node.stream)]), " after");
  for (const std::uint32_t before : node.after)
    out += concat(" ", before);
  return out;
}
std::vector<std::string> texts_of(const GraphTrace& trace) {
  std::vector<std::string> out;
  for (const GraphTrace::Node& node : trace.nodes)
    out.push_back(text_of(trace, node));
  for (const GraphTrace::Loop& loop : trace.loops)
    out.push_back(concat("loop of ", loop.begin, " to ", loop.end));
  return out;
}

// Recorded steps: on the SIMT tier a stand-in takes CUPTI's place.
struct Recorded {
  std::vector<RankRecord> ranks;
  // By rank and graph, while the graphs live.
  std::map<std::pair<int, std::size_t>, std::vector<std::string>> traces, planned;
  std::map<std::pair<int, std::size_t>, std::vector<std::map<std::int64_t, int>>> runs;
};

// Records steps 1 and 2 of three.
Recorded record(ToyTraining run) {
  Recorded out;
  std::mutex mutex;
  std::vector<std::optional<StepRecorder>> recorders(static_cast<std::size_t>(run.world));
  const trainer::RunConfig config = test::toy_config(run);
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  run.before_step = [&](RankContext& rank, RunState& state, int step) {
    std::optional<StepRecorder>& recorder = recorders[static_cast<std::size_t>(rank.rank)];
    rank.wait(rank.compute);
    rank.barrier.arrive({}, "test");
    if (step == 1) recorder.emplace(rank.rank, state.step.graphs());
    rank.barrier.arrive({}, "test");
    if (recorder && step < 3) recorder->begin_step(step, false);
    if (step < 3) return;
    RankRecord record = recorder->take(false);
    recorder.reset();
    const auto make = [&](RankContext& context, Arena& arena) {
      return std::make_unique<RunState>(context, config, params, plan, arena);
    };
    traced(rank.rank, run.world, make, [&](const TraceArena& /*arena*/, const auto& traces) {
      const std::lock_guard lock(mutex);
      for (std::size_t g = 0; g < record.graphs.size(); ++g) {
        out.traces[{rank.rank, g}] = texts_of(*record.graphs[g]);
        out.planned[{rank.rank, g}] = texts_of(*traces[g]);
        auto& runs = out.runs[{rank.rank, g}];
        runs.resize(record.graphs[g]->nodes.size());
        for (const StepRecord& recorded : record.steps)
          for (const auto& [graph, one] : recorded.runs)
            if (graph == g) ++runs[one.node][one.launch];
      }
      out.ranks.push_back(std::move(record));
      return 0;
    });
  };
  run.steps = 4;
  run = on_device(run);
  EXPECT_EQ(run.devices.plugin->record_nodes(), "");
  test::train(run);
  return out;
}

TEST(RecordedStep, HasEveryNodeOfTheStepThatWasPlanned) {
  for (const int world : {1, 2, 4}) {
    const Recorded recorded = record({.world = world, .accumulation = world == 1 ? 10 : 1});
    ASSERT_EQ(std::ssize(recorded.ranks), world);
    ASSERT_EQ(std::ssize(recorded.traces), world);
    EXPECT_EQ(recorded.traces, recorded.planned);
    for (const RankRecord& rank : recorded.ranks)
      EXPECT_EQ(rank.lost_runs, 0);
    for (const auto& [where, nodes] : recorded.runs) {
      const std::vector<std::string>& names = recorded.traces.at(where);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        ASSERT_EQ(nodes[i].size(), 2U) << names[i];  // two steps, a launch each
        const int first = nodes[i].begin()->second;
        EXPECT_EQ(nodes[i].rbegin()->second, first) << names[i];
        // A pass each of the loop over the first nine micro-steps.
        const bool in_loop = names[i].starts_with("micro-step 0 ") && world == 1;
        EXPECT_TRUE(!in_loop || first % 9 == 0) << names[i];
      }
    }
  }
}

TEST(RecordedStep, BeginsAndEndsWithinTheStep) {
  const double before = steady_seconds();
  const Recorded recorded = record({.world = 2});
  const double after = steady_seconds();
  for (const RankRecord& rank : recorded.ranks) {
    ASSERT_EQ(rank.steps.size(), 2U);
    double last = before;
    for (const StepRecord& step : rank.steps) {
      ASSERT_FALSE(step.runs.empty());
      EXPECT_GT(step.runs.front().run.begin, last);
      for (const auto& [graph, run] : step.runs) {
        EXPECT_GE(run.end, run.begin);
        EXPECT_LT(run.end, after);
        ASSERT_NE(run.kernel, nullptr);
        EXPECT_NE(std::string(run.kernel), "");
        last = std::max(last, run.begin);
      }
    }
  }
}

}  // namespace
}  // namespace muo::graphs
