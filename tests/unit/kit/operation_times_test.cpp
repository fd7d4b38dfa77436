#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <string>

#include "graphs/run_state.h"
#include "kernels/gemm.h"
#include "kernels/residual.h"
#include "kit/bench/step_times.h"
#include "runtime/host/host_device.h"
#include "support/tensors.h"
#include "support/toy_training.h"

namespace muo::kit {
namespace {

using test::HostTensor;
using test::ToyTraining;

const OperationTime& row_of(const std::vector<OperationTime>& rows, const std::string& name) {
  const auto row = std::ranges::find(rows, name, &OperationTime::name);
  MUO_CHECK(row != rows.end(), "no row '", name, "'");
  return *row;
}

TEST(OperationTimes, AreSummedByKind) {
  HostDevice device(0);
  const auto stream = device.make_stream(StreamPriority::kNormal);
  const HostTensor d({3, 5}), a({3, 7}), b({5, 7}), y({100}), x({100});
  const HostTensor half({4, 4}, DType::kBF16), quarter({4, 4}, DType::kBF16);
  const HostTensor sum({4, 4});
  const auto graph = stream->capture([&] {
    for (int i = 0; i < 2; ++i)
      gemm(*stream, {.d = d, .a = a, .b = b, .transpose_b = true});
    gemm(*stream, {.d = sum, .a = half, .b = quarter});
    add(*stream, {.y = y, .x = x});
    stream->copy(y, x);
  });
  NodeSums times(graph->trace());
  ASSERT_TRUE(graph->observe(&times));
  for (int i = 0; i < 3; ++i)
    stream->launch(*graph);
  std::vector<OperationTime> rows;
  add_operations(rows, graph->trace(), times.of());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].shape, "NT 3x7x5");
  EXPECT_EQ(rows[0].calls, 2 * 3);
  EXPECT_EQ(rows[0].flops, 2 * 3 * (2.0 * 3 * 5 * 7));
  EXPECT_EQ(rows[0].bytes, 2 * 3 * 4.0 * (15 + 21 + 35));
  EXPECT_EQ(rows[0].dtype, DType::kF32);
  EXPECT_EQ(rows[1].dtype, DType::kBF16);
  EXPECT_EQ(rows[1].bytes, 3 * (4.0 * 16 + 2 * 2 * 16));
  EXPECT_EQ(row_of(rows, "add").bytes, 3 * 4.0 * (2 * 100 + 100));  // reads x and y, writes y
  EXPECT_EQ(row_of(rows, "add").flops, 0);
  EXPECT_EQ(row_of(rows, "copy").bytes, 3 * 4.0 * (100 + 100));

  double wall = 0;
  for (const NodeSums::Sum& time : times.of())
    wall += time.wall;
  double in_rows = 0;
  for (const OperationTime& row : rows)
    in_rows += row.seconds + row.waited;
  EXPECT_GT(wall, 0);
  EXPECT_NEAR(in_rows, wall, 1e-12);

  std::vector<OperationTime> twice = rows;
  add_operations(twice, rows);  // as if from another rank
  ASSERT_EQ(twice.size(), rows.size());
  EXPECT_EQ(twice[0].calls, 2 * rows[0].calls);
  EXPECT_EQ(twice[0].seconds, 2 * rows[0].seconds);
  EXPECT_EQ(twice[0].bytes, 2 * rows[0].bytes);
  EXPECT_EQ(twice[0].flops, 2 * rows[0].flops);
}

TEST(OperationTimes, KnowThePhaseOfAStep) {
  std::vector<OperationTime> rows;
  std::deque<NodeSums> times;
  ToyTraining run{.world = 2, .accumulation = 2, .steps = 3};
  run.before_step = [&](RankContext& rank, graphs::RunState& state, int step) {
    if (rank.rank != 1) return;
    for (Graph* graph : state.step.graphs()) {
      if (step == 0)
        EXPECT_TRUE(graph->observe(&times.emplace_back(graph->trace())));
      else if (step == 2)
        add_operations(rows, graph->trace(), times[0].of());
    }
  };
  test::train(run);
  std::set<std::string> phases;
  for (const OperationTime& row : rows) {
    phases.insert(row.phase);
    EXPECT_GT(row.calls, 0) << row.name;
    EXPECT_EQ(row.calls % 2, 0) << row.name;  // two steps
  }
  for (const char* phase :
       {"forward", "losses", "backward", "reduce", "update", "commit", "gather"})
    EXPECT_TRUE(phases.contains(phase)) << phase;
  EXPECT_EQ(row_of(rows, "cross_entropy").phase, "losses");
  EXPECT_EQ(row_of(rows, "attention").phase, "forward");
  EXPECT_EQ(row_of(rows, "attention_backward").phase, "backward");
  EXPECT_EQ(row_of(rows, "sum_squares").phase, "update");
  EXPECT_EQ(row_of(rows, "adamw").phase, "commit");
  EXPECT_EQ(row_of(rows, "all_gather").phase, "gather");
  for (const char* collective : {"all_reduce", "all_gather"})
    EXPECT_TRUE(row_of(rows, collective).is_collective());
  EXPECT_FALSE(row_of(rows, "gemm").is_collective());
}

TEST(OperationTimes, TimingChangesNoNumber) {
  ToyTraining run{.world = 2, .accumulation = 2, .steps = 4};
  const test::ToyCurves plain = test::train(run);
  struct : NodeObserver {
    void ran(const NodeRun& /*run*/) override { ++nodes; }
    std::atomic<int> nodes = 0;
  } observer;
  run.before_step = [&](RankContext& /*rank*/, graphs::RunState& state, int step) {
    for (Graph* graph : state.step.graphs())
      graph->observe(step == 1 ? &observer : nullptr);
  };
  const test::ToyCurves timed = test::train(run);
  EXPECT_GT(observer.nodes, 100);
  EXPECT_EQ(timed.losses, plain.losses);
  EXPECT_EQ(timed.weights, plain.weights);
}

}  // namespace
}  // namespace muo::kit
