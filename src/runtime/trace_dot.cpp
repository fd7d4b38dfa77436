#include "runtime/trace_dot.h"

#include <map>

#include "base/check.h"

namespace muo {

std::string trace_dot(const GraphTrace& trace) {
  std::map<int, std::string> columns;  // by stream
  std::string edges;
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    const GraphTrace::Node& node = trace.nodes[i];
    columns[node.stream] += concat("    n", i, " [label=\"", i, " ", node.name, "\"];\n");
    for (const std::uint32_t before : node.after)
      edges += concat("  n", before, " -> n", i, ";\n");
  }
  std::string out = "digraph step {\n  node [shape=box];\n";
  for (const auto& [stream, nodes] : columns)
    out += concat("  subgraph cluster_", stream, " {\n    label=\"stream ", stream, "\";\n", nodes,
                  "  }\n");
  return out + edges + "}\n";
}

}  // namespace muo
