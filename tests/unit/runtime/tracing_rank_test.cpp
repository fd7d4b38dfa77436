#include "runtime/tracing_rank.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory_plan.h"

namespace muo {
namespace {

// Captures a small run on rank `rank`; the same code for tracing and for running.
std::unique_ptr<Graph> capture(RankContext& rank, Arena& arena) {
  const Tensor full = arena.tensor({.name = "full", .shape = {12}});
  const Tensor shard = arena.tensor({.name = "shard", .shape = {12 / rank.world}});
  const Tensor weight = arena.tensor({.name = "weight", .shape = {12}, .lifespan = Lifespan::kRun});
  const auto fork = rank.device.make_event();
  const auto join = rank.device.make_event();
  return rank.compute.capture([&] {
    rank.compute.copy(full, weight);
    rank.compute.record(*fork);
    rank.comm.wait(*fork);
    rank.communicator.reduce_scatter(rank.comm, 1, shard, full);
    rank.communicator.all_gather(rank.comm, 2, weight, shard);
    rank.comm.record(*join);
    rank.compute.wait(*join);
  });
}

TEST(TracingRank, CapturesTheNodesOfARunWithoutPeersOrMemory) {
  for (const int world : {1, 3, 4}) {
    std::vector<GraphTrace> traced;
    std::vector<MemoryPlan> plans;
    for (int rank = 0; rank < world; ++rank) {
      TracingRank tracing(rank, world);
      EXPECT_EQ(tracing.context().world, world);
      EXPECT_EQ(tracing.context().rank, rank);
      TraceArena arena(rank);
      const auto graph = capture(tracing.context(), arena);
      plans.push_back(plan_memory(arena, std::vector<const GraphTrace*>{&graph->trace()}));
      traced.push_back(graph->trace());
    }
    DeviceGroup group({.world = world});
    group.run([&](RankContext& rank) {
      const auto r = static_cast<std::size_t>(rank.rank);
      PlannedArena arena(rank.device, plans[r]);
      const auto graph = capture(rank, arena);
      const auto& real = graph->trace().nodes;
      const auto& planned = traced[r].nodes;
      ASSERT_EQ(real.size(), planned.size());
      for (std::size_t i = 0; i < real.size(); ++i) {
        EXPECT_EQ(real[i].name, planned[i].name);
        EXPECT_EQ(real[i].stream, planned[i].stream);
        EXPECT_EQ(real[i].after, planned[i].after);
        ASSERT_EQ(real[i].accesses.size(), planned[i].accesses.size());
        for (std::size_t k = 0; k < real[i].accesses.size(); ++k) {
          EXPECT_EQ(real[i].accesses[k].bytes, planned[i].accesses[k].bytes);
          EXPECT_EQ(real[i].accesses[k].write, planned[i].accesses[k].write);
        }
      }
      rank.compute.launch(*graph);
    });
  }
}

TEST(TracingRank, RunsNothing) {
  TracingRank tracing(1, 3);
  RankContext& rank = tracing.context();
  TraceArena arena(1);
  const Tensor t = arena.tensor({.name = "t", .shape = {12}});
  const Tensor shard = arena.tensor({.name = "shard", .shape = {4}});
  EXPECT_THROW(rank.compute.zero(t), Error);
  EXPECT_THROW(rank.compute.copy(t.elements(0, 4), shard), Error);
  EXPECT_THROW(rank.communicator.all_gather(rank.comm, 1, t, shard), Error);
  const auto graph = rank.compute.capture([&] { rank.compute.zero(t); });
  EXPECT_THROW(rank.compute.launch(*graph), Error);
  EXPECT_THROW(rank.compute.synchronize(), Error);
  EXPECT_NO_THROW(rank.barrier.arrive());
}

TEST(TracingRank, TakesNoMemoryForAnySize) {
  constexpr std::int64_t kTerabyte = std::int64_t{1} << 40;
  TracingRank tracing(0, 64);
  TraceArena arena(0);
  const Tensor a = arena.tensor({.name = "a", .shape = {kTerabyte}, .dtype = DType::kBytes});
  const Tensor b = arena.tensor({.name = "b", .shape = {kTerabyte}, .dtype = DType::kBytes});
  const auto buffer = tracing.context().device.allocate(kTerabyte, "c");
  const auto other = tracing.context().device.allocate(kTerabyte, "d");
  EXPECT_EQ(buffer->bytes(), kTerabyte);
  // Ranges of addresses are disjoint.
  const std::vector<const std::byte*> starts = {a.data, b.data, buffer->data(), other->data()};
  for (const std::byte* x : starts)
    for (const std::byte* y : starts)
      EXPECT_TRUE(x == y || x + kTerabyte <= y || y + kTerabyte <= x);
  EXPECT_THROW(TracingRank(3, 3), Error);
  EXPECT_THROW(TracingRank(-1, 3), Error);
}

}  // namespace
}  // namespace muo
