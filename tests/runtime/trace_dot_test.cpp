#include "runtime/trace_dot.h"

#include <gtest/gtest.h>

namespace muo {
namespace {

TEST(TraceDot, HasEveryNodeInItsStreamAndEveryEdge) {
  GraphTrace trace;
  trace.nodes = {{.name = "gemm", .stream = 0, .after = {}, .accesses = {}},
                 {.name = "all_reduce #7", .stream = 1, .after = {0}, .accesses = {}},
                 {.name = "norm", .stream = 0, .after = {0, 1}, .accesses = {}}};
  EXPECT_EQ(trace_dot(trace), R"(digraph step {
  node [shape=box];
  subgraph cluster_0 {
    label="stream 0";
    n0 [label="0 gemm"];
    n2 [label="2 norm"];
  }
  subgraph cluster_1 {
    label="stream 1";
    n1 [label="1 all_reduce #7"];
  }
  n0 -> n1;
  n0 -> n2;
  n1 -> n2;
}
)");
}

}  // namespace
}  // namespace muo
