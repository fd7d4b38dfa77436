#include "runtime/memory/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "runtime/host/host_device.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/check_memory_plan.h"
#include "support/errors.h"
#include "support/graphs.h"
#include "support/processor_time.h"

namespace muo {
namespace {

using test::message_of;
using test::random_graph;
using test::Reachability;

TensorSpec spec(std::string name, std::int64_t bytes, Lifespan lifespan = Lifespan::kStep) {
  return {.name = std::move(name), .shape = {bytes}, .dtype = DType::kBytes, .lifespan = lifespan};
}

// Two streams of a trace-only device.
struct Tracing {
  HostDevice device{0, {.trace_only = true}};
  std::unique_ptr<Stream> one = device.make_stream(StreamPriority::kNormal);
  std::unique_ptr<Stream> two = device.make_stream(StreamPriority::kNormal);
  std::unique_ptr<Event> event = device.make_event();
  TraceArena arena{0};
  std::vector<std::unique_ptr<Graph>> graphs;

  void capture(const std::function<void()>& body) { graphs.push_back(one->capture(body)); }
  [[nodiscard]] std::vector<const GraphTrace*> traces() const {
    std::vector<const GraphTrace*> out;
    for (const auto& graph : graphs)
      out.push_back(&graph->trace());
    return out;
  }
  [[nodiscard]] MemoryPlan plan() const { return plan_memory(arena, traces()); }
};

bool overlap(const MemoryPlan& plan, std::size_t a, std::size_t b) {
  const auto bytes = [&](std::size_t i) {
    return plan.specs[i].shape.numel() * size_of(plan.specs[i].dtype);
  };
  return plan.offsets[a] < plan.offsets[b] + bytes(b) &&
         plan.offsets[b] < plan.offsets[a] + bytes(a);
}

TEST(PlanMemory, SharesBytesBetweenTensorsThatAreNeverNeededTogether) {
  Tracing t;
  const Tensor weight = t.arena.tensor(spec("weight", 1000, Lifespan::kRun));
  const Tensor a = t.arena.tensor(spec("a", 1000));
  const Tensor b = t.arena.tensor(spec("b", 1000));
  const Tensor c = t.arena.tensor(spec("c", 1000));
  t.capture([&] {
    t.one->copy(a, weight);
    t.one->copy(b, a);
    t.one->copy(c, b);
    t.one->copy(weight, c);
  });
  const MemoryPlan plan = t.plan();
  EXPECT_TRUE(overlap(plan, 1, 3));
  EXPECT_FALSE(overlap(plan, 1, 2));
  EXPECT_FALSE(overlap(plan, 2, 3));
  EXPECT_EQ(plan.bytes, 3 * 1024);
  EXPECT_EQ(plan.run_bytes, 1024);
  EXPECT_EQ(plan.category_bytes(MemoryCategory::kActivations), 4 * 1024);
  EXPECT_EQ(plan.category_bytes(MemoryCategory::kWeights), 0);
}

TEST(PlanMemory, ASideStreamKeepsItsTensorsUntilItHasJoined) {
  for (const bool joined : {false, true}) {
    Tracing t;
    const Tensor a = t.arena.tensor(spec("a", 1000));
    const Tensor out = t.arena.tensor(spec("out", 1000, Lifespan::kRun));
    const Tensor b = t.arena.tensor(spec("b", 1000));
    t.capture([&] {
      t.one->zero(a);
      t.one->record(*t.event);
      t.two->wait(*t.event);
      t.two->copy(out, a);  // before `b` in capture order, but not ordered with it
      t.two->record(*t.event);
      if (joined) t.one->wait(*t.event);
      t.one->zero(b);
      t.one->wait(*t.event);
    });
    EXPECT_EQ(overlap(t.plan(), 0, 2), joined);
  }
}

// `early` and `loop's own` are never needed together within one pass, but the next pass reads
// `early` again.
TEST(PlanMemory, ATensorFromBeforeALoopLastsUntilItsEnd) {
  Tracing t;
  const Tensor counter = t.arena.tensor(spec("counter", 16, Lifespan::kRun));
  const Tensor early = t.arena.tensor(spec("early", 1000));
  const Tensor first = t.arena.tensor(spec("first", 1000));
  const Tensor second = t.arena.tensor(spec("second", 1000));
  const Tensor late = t.arena.tensor(spec("late", 1000));
  const Tensor out = t.arena.tensor(spec("out", 1000, Lifespan::kRun));
  const LoopCounter passes{.passes = counter.elements(0, 8).typed(DType::kI64, 1),
                           .count = counter.elements(8, 8).typed(DType::kI64, 1)};
  t.capture([&] {
    t.one->zero(early);
    t.one->loop(passes, 0, [&] {
      t.one->copy(first, early);
      t.one->copy(out, first);
      t.one->zero(second);
      t.one->copy(out, second);
    });
    t.one->zero(late);
    t.one->copy(out, late);
  });
  MemoryPlan plan = t.plan();
  EXPECT_FALSE(overlap(plan, 1, 2));
  EXPECT_FALSE(overlap(plan, 1, 3));
  EXPECT_TRUE(overlap(plan, 2, 3));  // a pass needs one after the other
  EXPECT_TRUE(overlap(plan, 1, 4));
  plan.offsets[3] = plan.offsets[1];
  const std::string message =
      message_of<Error>([&] { check_memory_plan(plan, t.arena, t.traces()); });
  EXPECT_NE(message.find("'copy' (node 2) uses 'early' after 'second'"), std::string::npos)
      << message;
}

TEST(PlanMemory, EveryGraphHasItsSay) {
  Tracing t;
  const Tensor a = t.arena.tensor(spec("a", 1000));
  const Tensor b = t.arena.tensor(spec("b", 1000));
  const Tensor alone = t.arena.tensor(spec("alone", 1000));
  t.capture([&] {
    t.one->zero(a);
    t.one->zero(b);
  });
  t.capture([&] { t.one->zero(alone); });
  EXPECT_TRUE(overlap(t.plan(), 0, 1));
  EXPECT_TRUE(overlap(t.plan(), 0, 2));
  t.capture([&] {
    t.one->zero(a);
    t.one->zero(b);
    t.one->zero(a);
  });
  EXPECT_FALSE(overlap(t.plan(), 0, 1));
  EXPECT_TRUE(overlap(t.plan(), 0, 2));
}

TEST(PlanMemory, WhatStaysThroughASeriesSharesWithOtherGraphsOnly) {
  Tracing t;
  const Tensor kept = t.arena.tensor(spec("kept", 1000, Lifespan::kSeries));
  const Tensor also = t.arena.tensor(spec("also", 1000, Lifespan::kSeries));
  const Tensor before = t.arena.tensor(spec("before", 1000));
  const Tensor elsewhere = t.arena.tensor(spec("elsewhere", 1000));
  t.capture([&] {
    t.one->zero(before);
    t.one->copy(kept, before);
  });
  t.capture([&] { t.one->copy(also, kept); });
  t.capture([&] { t.one->zero(elsewhere); });
  const MemoryPlan plan = t.plan();
  EXPECT_FALSE(overlap(plan, 0, 1));
  EXPECT_FALSE(overlap(plan, 0, 2)) << "though it is used after it";
  EXPECT_TRUE(overlap(plan, 1, 2)) << "no graph uses both";
  EXPECT_TRUE(overlap(plan, 0, 3));
  EXPECT_EQ(plan.bytes, 2 * 1024);
  EXPECT_EQ(plan.run_bytes, 0);
}

TEST(CheckMemoryPlan, WhatStaysThroughASeriesIsTakenByNobodyInIt) {
  Tracing t;
  const Tensor kept = t.arena.tensor(spec("kept", 1000, Lifespan::kSeries));
  const Tensor before = t.arena.tensor(spec("before", 1000));
  const Tensor after = t.arena.tensor(spec("after", 1000));
  t.capture([&] {
    t.one->zero(before);
    t.one->zero(kept);
    t.one->zero(after);
  });
  const MemoryPlan good = t.plan();
  for (const std::size_t other : {1U, 2U}) {
    MemoryPlan bad = good;
    bad.offsets[other] = bad.offsets[0];
    EXPECT_NE(message_of<Error>([&] {
                check_memory_plan(bad, t.arena, t.traces());
              }).find("has overwritten bytes of it"),
              std::string::npos)
        << other;
  }
}

TEST(PlanMemory, ATensorThatNoGraphUsesSharesWithNobody) {
  Tracing t;
  (void)t.arena.tensor(spec("unused", 1000));
  const Tensor a = t.arena.tensor(spec("a", 1000));
  t.capture([&] { t.one->zero(a); });
  const MemoryPlan plan = t.plan();
  EXPECT_FALSE(overlap(plan, 0, 1));
  EXPECT_EQ(plan.run_bytes, 0);
}

TEST(CheckStepTensors, ReadingWhatTheGraphHasNotWrittenNamesTensorAndNode) {
  for (const bool whole : {false, true}) {
    Tracing t;
    const Tensor a = t.arena.tensor(spec("activation", 1000));
    const Tensor out = t.arena.tensor(spec("out", 1000, Lifespan::kRun));
    t.capture([&] {
      t.one->zero(a.elements(500, 500));
      t.one->zero(a.elements(0, whole ? 500 : 499));
      t.one->copy(out, a);
    });
    const std::string message = message_of<Error>([&] { (void)t.plan(); });
    EXPECT_EQ(message == "no exception", whole) << message;
    if (whole) continue;
    EXPECT_NE(message.find("'copy' (node 2) reads 'activation'"), std::string::npos) << message;
  }
}

TEST(CheckStepTensors, WhatARunTensorHoldsMayBeReadAtOnce) {
  Tracing t;
  const Tensor weight = t.arena.tensor(spec("weight", 1000, Lifespan::kRun));
  const Tensor a = t.arena.tensor(spec("a", 1000));
  t.capture([&] { t.one->copy(a, weight); });
  EXPECT_NO_THROW((void)t.plan());
}

TEST(CheckStepTensors, AnAccessBeyondATensorIsAnError) {
  Tracing t;
  const Tensor a = t.arena.tensor(spec("a", 1000));
  Tensor longer = a;
  longer.shape = {1001};
  t.capture([&] { t.one->zero(longer); });
  const std::string message = message_of<Error>([&] { (void)t.plan(); });
  EXPECT_NE(message.find("'a'"), std::string::npos) << message;
}

TEST(CheckPlan, MemorySharedTooEarlyIsAnError) {
  Tracing t;
  const Tensor a = t.arena.tensor(spec("early", 1000));
  const Tensor b = t.arena.tensor(spec("intruder", 1000));
  const Tensor out = t.arena.tensor(spec("out", 1000, Lifespan::kRun));
  t.capture([&] {
    t.one->zero(a);
    t.one->zero(b);
    t.one->copy(out, a);
  });
  MemoryPlan plan = t.plan();
  EXPECT_NO_THROW(check_memory_plan(plan, t.arena, t.traces()));
  plan.offsets[1] = plan.offsets[0] + 768;
  const std::string message =
      message_of<Error>([&] { check_memory_plan(plan, t.arena, t.traces()); });
  EXPECT_NE(message.find("'copy' (node 2) uses 'early' after 'intruder'"), std::string::npos)
      << message;
}

TEST(CheckPlan, MemorySharedAcrossStreamsWithoutAnEventIsAnErrorThereAndAtCapture) {
  Tracing t;
  const Tensor a = t.arena.tensor(spec("a", 1000));
  const Tensor b = t.arena.tensor(spec("b", 1000));
  const auto step = [](Stream& one, Stream& two, Event& event, const Tensor& x, const Tensor& y) {
    return one.capture([&] {
      one.record(event);
      two.wait(event);
      two.zero(x);
      two.record(event);
      one.zero(y);
      one.wait(event);
    });
  };
  t.graphs.push_back(step(*t.one, *t.two, *t.event, a, b));
  MemoryPlan plan = t.plan();
  const auto capture_planned = [&] {
    HostDevice device(0);
    PlannedArena arena(device, plan);
    const Tensor x = arena.tensor(spec("a", 1000));
    const Tensor y = arena.tensor(spec("b", 1000));
    const auto one = device.make_stream(StreamPriority::kNormal);
    const auto two = device.make_stream(StreamPriority::kNormal);
    (void)step(*one, *two, *device.make_event(), x, y);
  };
  EXPECT_NO_THROW(capture_planned());
  plan.offsets[1] = plan.offsets[0];
  EXPECT_THROW(check_memory_plan(plan, t.arena, t.traces()), Error);
  EXPECT_THROW(capture_planned(), Error);
}

// A random graph that writes each tensor before it reads it, in order.
GraphTrace random_step(std::uint64_t seed, const TraceArena& arena, int streams, int nodes) {
  GraphTrace trace = random_graph(seed, streams, nodes);
  const CounterRandom random(seed, "uses");
  std::uint64_t draw = 0;
  std::vector<std::int64_t> writer(arena.tensors().size(), -1);
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    GraphTrace::Node& node = trace.nodes[i];
    for (int k = 0; k < 2; ++k) {
      // Tensors are used roughly in their order, like activations.
      const std::size_t window = writer.size() * i / trace.nodes.size();
      const std::size_t tensor = (window + random.bits(draw++) % 4) % writer.size();
      const Tensor& t = arena.tensors()[tensor];
      std::int64_t& wrote = writer[tensor];
      if (wrote == static_cast<std::int64_t>(i)) continue;
      node.accesses.push_back({t.data, t.bytes(), wrote < 0});
      if (wrote >= 0) node.after.push_back(static_cast<std::uint32_t>(wrote));
      if (wrote < 0) wrote = static_cast<std::int64_t>(i);
    }
    std::sort(node.after.begin(), node.after.end());
    node.after.erase(std::unique(node.after.begin(), node.after.end()), node.after.end());
  }
  return trace;
}

// True if every use of the first tensor is before every use of the second, by brute force.
bool all_before(const GraphTrace& graph, const Reachability& reach, const Tensor& first,
                const Tensor& second) {
  const auto uses = [](const GraphTrace::Node& node, const Tensor& t) {
    return std::any_of(node.accesses.begin(), node.accesses.end(),
                       [&](const Access& access) { return access.data == t.data; });
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (std::size_t m = 0; m < graph.nodes.size(); ++m)
      if (uses(graph.nodes[n], first) && uses(graph.nodes[m], second) && !reach.before(n, m))
        return false;
  return true;
}

TEST(PlanMemory, OnRandomGraphsSharedBytesHaveOrderedUses) {
  constexpr std::size_t kTensors = 12;
  int shared = 0;
  int apart = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TraceArena arena(0);
    const CounterRandom random(seed, "sizes");
    for (std::uint64_t i = 0; i < kTensors; ++i)
      (void)arena.tensor(
          spec("t" + std::to_string(i), 1 + static_cast<std::int64_t>(random.bits(i) % 3000)));
    const GraphTrace graphs[] = {random_step(2 * seed, arena, 2, 48),
                                 random_step(2 * seed + 1, arena, 2, 48)};
    const Reachability reach[] = {Reachability(graphs[0]), Reachability(graphs[1])};
    const MemoryPlan plan =
        plan_memory(arena, std::vector<const GraphTrace*>{&graphs[0], &graphs[1]});
    for (std::size_t y = 0; y < kTensors; ++y)
      for (std::size_t x = 0; x < y; ++x) {
        bool ordered = true;
        for (std::size_t g = 0; g < 2; ++g) {
          const Tensor& a = arena.tensors()[x];
          const Tensor& b = arena.tensors()[y];
          ordered = ordered && (all_before(graphs[g], reach[g], a, b) ||
                                all_before(graphs[g], reach[g], b, a));
        }
        if (overlap(plan, x, y)) {
          EXPECT_TRUE(ordered) << "seed " << seed << ": " << x << " and " << y;
          ++shared;
        }
        apart += !ordered;
      }
  }
  EXPECT_GT(shared, 500);  // there are such pairs
  EXPECT_GT(apart, 500);
}

TEST(PlanMemory, TakesTimeInProportionToTheNumberOfNodes) {
  const auto seconds = [](int nodes) {
    TraceArena arena(0);
    const CounterRandom random(1, "sizes");
    for (std::uint64_t i = 0; i < 200; ++i)
      (void)arena.tensor(
          spec("t" + std::to_string(i), 1 + static_cast<std::int64_t>(random.bits(i) % 1000000)));
    const GraphTrace trace = random_step(1, arena, 1, nodes);
    const std::vector<const GraphTrace*> graphs = {&trace};
    const MemoryPlan plan = plan_memory(arena, graphs);
    EXPECT_LT(plan.bytes, plan.category_bytes(MemoryCategory::kActivations) / 10);
    return test::processor_seconds([&] { static_cast<void>(plan_memory(arena, graphs)); });
  };
  EXPECT_LT(seconds(20'000), 24 * seconds(2'500));
}

TEST(PlannedArena, HandsOutThePlannedTensorsInTheirOrderAndNoOthers) {
  Tracing t;
  const Tensor a = t.arena.tensor(spec("a", 1000));
  const Tensor b = t.arena.tensor(spec("b", 500, Lifespan::kRun));
  t.capture([&] {
    t.one->zero(a);
    t.one->zero(b);
  });
  const MemoryPlan plan = t.plan();
  HostDevice device(3);
  PlannedArena arena(device, plan);
  EXPECT_EQ(device.allocations(), 1);
  EXPECT_THROW((void)arena.tensor(spec("b", 500, Lifespan::kRun)), Error);  // out of order
  EXPECT_THROW((void)arena.tensor(spec("a", 1001)), Error);
  const Tensor x = arena.tensor(spec("a", 1000));
  const Tensor y = arena.tensor(spec("b", 500, Lifespan::kRun));
  EXPECT_EQ(y.data - x.data, plan.offsets[1] - plan.offsets[0]);
  EXPECT_EQ(x.device, 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data) % kAlignment, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(y.data) % kAlignment, 0U);
  EXPECT_EQ(std::accumulate(x.data, x.data + 1000, 0,
                            [](int n, std::byte v) { return n + std::to_integer<int>(v); }),
            0);
  EXPECT_THROW((void)arena.tensor(spec("c", 1)), Error);  // one too many
}

TEST(PlannedArena, RanksHaveTheirCommonTensorsOnce) {
  constexpr int kWorld = 3;
  Tracing t;
  TensorSpec weights = spec("weights", 1000, Lifespan::kRun);
  weights.common = true;
  const Tensor traced = t.arena.tensor(weights);
  const Tensor own = t.arena.tensor(spec("own", 500));
  t.capture([&] { t.one->copy(own, traced.elements(0, 500)); });
  const MemoryPlan plan = t.plan();
  EXPECT_EQ(plan.bytes, 512);
  EXPECT_EQ(plan.common_bytes, 1024);
  EXPECT_EQ(plan.rank_bytes(kWorld), 512 + 342);
  CommonMemory common(kWorld);
  std::vector<std::unique_ptr<PlannedArena>> arenas;
  std::vector<Tensor> seen;
  for (int rank = 0; rank < kWorld; ++rank) {
    HostDevice device(rank);
    arenas.push_back(std::make_unique<PlannedArena>(device, plan, &common));
    EXPECT_EQ(device.allocations(), rank == 0 ? 2 : 1);
    seen.push_back(arenas.back()->tensor(weights));
    const Tensor mine = arenas.back()->tensor(spec("own", 500));
    mine.data[0] = std::byte{1};
  }
  EXPECT_EQ(seen[1].data, seen[0].data);
  EXPECT_EQ(seen[2].data, seen[0].data);
  EXPECT_EQ(seen[0].data[0], std::byte{0});
  HostDevice alone(0);
  EXPECT_THROW(PlannedArena(alone, plan), Error);  // no common memory
  HostDevice other(1);
  static_cast<void>(common.take(alone, 1, "a second piece"));
  EXPECT_THROW((void)common.take(other, 2, "a second piece"), Error);
}

TEST(PlanMemory, WhatIsCommonOutlivesTheStep) {
  Tracing t;
  TensorSpec step = spec("step", 8);
  step.common = true;
  static_cast<void>(t.arena.tensor(step));
  EXPECT_THROW((void)t.plan(), Error);
}

}  // namespace
}  // namespace muo
