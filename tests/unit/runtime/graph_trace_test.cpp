#include "runtime/graph_trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "runtime/memory/arena.h"
#include "support/errors.h"
#include "support/graphs.h"
#include "support/processor_time.h"

namespace muo {
namespace {

using test::message_of;
using test::random_graph;
using test::Reachability;

// Bytes [begin, end) of some memory.
Access bytes(std::int64_t begin, std::int64_t end, bool write) {
  static const std::vector<std::byte> memory(1 << 16);
  return {memory.data() + begin, end - begin, write};
}
GraphTrace::Node node(std::string name, int stream, std::vector<std::uint32_t> after,
                      std::vector<Access> accesses) {
  return {.name = std::move(name),
          .stream = stream,
          .after = std::move(after),
          .accesses = std::move(accesses)};
}

TEST(CheckRaces, EveryPairOfConflictingAccessesNeedsAnOrder) {
  for (const bool first : {false, true})
    for (const bool second : {false, true}) {
      for (const bool ordered : {false, true}) {
        const GraphTrace trace = {
            {node("first", 0, {}, {bytes(0, 100, first)}),
             node("second", 1,
                  ordered ? std::vector<std::uint32_t>{0} : std::vector<std::uint32_t>{},
                  {bytes(99, 150, second)})}};
        if ((first || second) && !ordered) {
          const std::string message = message_of<Error>([&] { check_races(trace); });
          EXPECT_NE(message.find("'first'"), std::string::npos) << message;
          EXPECT_NE(message.find("'second'"), std::string::npos) << message;
        } else {
          EXPECT_NO_THROW(check_races(trace));
        }
      }
    }
}

TEST(CheckRaces, NeighboursAndEmptyAccessesDoNotMeet) {
  EXPECT_NO_THROW(check_races(
      {{node("a", 0, {}, {bytes(0, 100, true)}), node("b", 1, {}, {bytes(100, 200, true)}),
        node("c", 2, {}, {bytes(50, 50, true)})}}));
}

TEST(CheckRaces, AReaderIsRememberedBehindALaterReaderOfAnotherStream) {
  const auto trace = [](bool ordered) {
    return GraphTrace{
        {node("write", 0, {}, {bytes(0, 8, true)}), node("read 1", 1, {0}, {bytes(0, 8, false)}),
         node("read 2", 2, {0}, {bytes(4, 8, false)}),
         node("again", 0,
              ordered ? std::vector<std::uint32_t>{0, 1, 2} : std::vector<std::uint32_t>{0, 2},
              {bytes(0, 8, true)})}};
  };
  EXPECT_NO_THROW(check_races(trace(true)));
  const std::string message = message_of<Error>([&] { check_races(trace(false)); });
  EXPECT_NE(message.find("'read 1'"), std::string::npos) << message;
}

TEST(CheckRaces, AgreesWithEveryPairByReachability) {
  int racy = 0;
  constexpr int kGraphs = 400;
  for (int seed = 0; seed < kGraphs; ++seed) {
    GraphTrace trace = random_graph(static_cast<std::uint64_t>(seed), 3, 14);
    const CounterRandom random(static_cast<std::uint64_t>(seed), "accesses");
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t n) {
      return static_cast<std::int64_t>(random.bits(draw++) % n);
    };
    for (GraphTrace::Node& n : trace.nodes) {
      const std::int64_t count = below(3);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = below(60);
        n.accesses.push_back(bytes(begin, begin + below(12), below(4) == 0));
      }
    }
    const Reachability reach(trace);
    bool expected = false;
    for (std::size_t b = 0; b < trace.nodes.size(); ++b)
      for (std::size_t a = 0; a < b; ++a)
        for (const Access& x : trace.nodes[a].accesses)
          for (const Access& y : trace.nodes[b].accesses)
            expected |= (x.write || y.write) && x.data < y.data + y.bytes &&
                        y.data < x.data + x.bytes && x.bytes > 0 && y.bytes > 0 &&
                        !reach.before(a, b);
    bool found = false;
    try {
      check_races(trace);
    } catch (const Error&) {
      found = true;
    }
    EXPECT_EQ(found, expected) << "seed " << seed;
    racy += expected;
  }
  EXPECT_GT(racy, kGraphs / 10);
  EXPECT_LT(racy, kGraphs * 9 / 10);
}

TEST(TraceOrder, AgreesWithReachability) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const GraphTrace trace = random_graph(seed, 4, 30);
    const Reachability reach(trace);
    const TraceOrder order(trace);
    for (std::uint32_t b = 0; b < trace.nodes.size(); ++b)
      for (std::uint32_t a = 0; a < trace.nodes.size(); ++a)
        EXPECT_EQ(order.before(a, b), reach.before(a, b)) << a << " " << b << " seed " << seed;
  }
}

TEST(TraceOrder, RefusesTracesThatAreNotInOrder) {
  EXPECT_THROW(TraceOrder({{node("a", 0, {1}, {}), node("b", 0, {}, {})}}), Error);
  EXPECT_THROW(TraceOrder({{node("a", 0, {}, {}), node("b", 0, {}, {})}}), Error);
  EXPECT_THROW(TraceOrder({{node("a", -1, {}, {})}}), Error);
}

// Eight times as many nodes take eight times as long; quadratic time would be 64 times.
TEST(CheckRaces, TakesTimeInProportionToTheNumberOfNodes) {
  const auto seconds = [](int nodes) {
    GraphTrace trace = random_graph(1, 4, nodes);
    const CounterRandom random(1, "accesses");
    std::uint64_t draw = 0;
    for (GraphTrace::Node& n : trace.nodes)  // each stream uses its own memory: no race
      for (int i = 0; i < 6; ++i) {
        const auto begin =
            static_cast<std::int64_t>(random.bits(draw++) % 15000) + std::int64_t{16384} * n.stream;
        n.accesses.push_back(bytes(
            begin, begin + 1 + static_cast<std::int64_t>(random.bits(draw++) % 1000), i == 0));
      }
    return test::processor_seconds([&] { check_races(trace); });
  };
  EXPECT_LT(seconds(10'000), 24 * seconds(1'250));
}

TEST(TraceDot, HasEveryNodeInItsStreamAndEveryEdge) {
  GraphTrace trace;
  trace.streams = {StreamPriority::kNormal, StreamPriority::kHigh};
  trace.ranges = {
      {.kind = ProfileKind::kPhase, .name = "micro-step", .number = 1},
      {.kind = ProfileKind::kLayer, .name = "block 0 forward", .number = {}, .outer = 0}};
  trace.nodes = {{.name = "gemm",
                  .stream = 0,
                  .after = {},
                  .accesses = {},
                  .cost = {.shape = "NT 2x3x4"},
                  .range = 1},
                 {.name = "all_reduce #7", .stream = 1, .after = {0}, .accesses = {}, .range = 0},
                 {.name = "norm", .stream = 0, .after = {0, 1}, .accesses = {}}};
  trace.loops = {{.begin = 1, .end = 3}};
  EXPECT_EQ(trace_dot(trace), R"(digraph step {
  node [shape=box];
  subgraph cluster_0 {
    label="compute";
    n0 [label="0 gemm NT 2x3x4\nmicro-step 1 > block 0 forward"];
    n2 [label="2 norm\n"];
  }
  subgraph cluster_1 {
    label="comm";
    n1 [label="1 all_reduce #7\nmicro-step 1"];
  }
  n0 -> n1;
  n0 -> n2;
  n1 -> n2;
  n2 -> n1 [style=dashed, label="next pass", constraint=false];
}
)");
}

}  // namespace
}  // namespace muo
