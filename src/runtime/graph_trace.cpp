#include "runtime/graph_trace.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/check.h"

namespace muo {

TraceOrder::TraceOrder(const GraphTrace& trace) {
  const std::size_t nodes = trace.nodes.size();
  stream_of_.reserve(nodes);
  for (const GraphTrace::Node& node : trace.nodes) {
    MUO_CHECK(node.stream >= 0, "node '", node.name, "'");
    stream_of_.push_back(static_cast<std::size_t>(node.stream));
    streams_ = std::max(streams_, stream_of_.back() + 1);
  }
  positions_.resize(nodes);
  clocks_.assign(nodes * streams_, 0);
  std::vector<std::uint32_t> length(streams_, 0);
  for (std::size_t i = 0; i < nodes; ++i) {
    std::uint32_t* clock = clocks_.data() + i * streams_;
    for (const std::uint32_t before : trace.nodes[i].after) {
      MUO_CHECK(before < i, "node '", trace.nodes[i].name, "' follows a later one");
      const std::uint32_t* other = clocks_.data() + before * streams_;
      for (std::size_t s = 0; s < streams_; ++s)
        clock[s] = std::max(clock[s], other[s]);
      std::uint32_t& own = clock[stream_of_[before]];
      own = std::max(own, positions_[before]);
    }
    std::uint32_t& here = length[stream_of_[i]];
    MUO_CHECK(clock[stream_of_[i]] == here, "node '", trace.nodes[i].name,
              "' does not follow its predecessor on stream ", stream_of_[i]);
    positions_[i] = ++here;
  }
}

namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Last accesses to a range of bytes: the node that wrote it, and since then, per stream, the last
// node that read it (earlier readers of the same stream are ordered by the stream).
struct History {
  std::uint32_t writer = kNone;
  std::vector<std::uint32_t> readers;  // empty, or one per stream
};

class RaceFinder {
 public:
  explicit RaceFinder(const GraphTrace& trace) : trace_(trace), order_(trace) {}

  void run() {
    for (std::uint32_t node = 0; node < trace_.nodes.size(); ++node) {
      // Reads first: a node that reads and writes the same bytes must be ordered as a reader, too.
      for (const bool write : {false, true})
        for (const Access& access : trace_.nodes[node].accesses)
          if (access.write == write && access.bytes > 0) touch(node, access);
    }
  }

 private:
  using Map = std::map<const std::byte*, History>;  // key: first byte; up to the next key

  void touch(std::uint32_t node, const Access& access) {
    const std::byte* end = access.data + access.bytes;
    const auto first = split(access.data);
    const auto last = split(end);
    for (auto it = first; it != last; ++it) {
      History& history = it->second;
      check(history.writer, node, access, it->first);
      if (access.write) {
        for (const std::uint32_t reader : history.readers)
          check(reader, node, access, it->first);
      } else {
        history.readers.resize(order_.streams(), kNone);
        history.readers[order_.stream(node)] = node;
      }
    }
    if (!access.write) return;
    // Merge into one range, so that the map does not grow with the number of views.
    first->second.writer = node;
    first->second.readers.clear();
    ranges_.erase(std::next(first), last);
  }

  // The range that begins at `at`, split from the one that contains it if necessary.
  Map::iterator split(const std::byte* at) {
    const auto next = ranges_.lower_bound(at);
    if (next != ranges_.end() && next->first == at) return next;
    History history = next == ranges_.begin() ? History{} : std::prev(next)->second;
    return ranges_.emplace_hint(next, at, std::move(history));
  }

  void check(std::uint32_t earlier, std::uint32_t node, const Access& access,
             const std::byte* at) const {
    if (earlier == kNone || earlier == node || order_.before(earlier, node)) return;
    const auto& a = trace_.nodes[earlier];
    const auto& b = trace_.nodes[node];
    MUO_FAIL("no event orders '", a.name, "' (node ", earlier, ", stream ", a.stream, ") and '",
             b.name, "' (node ", node, ", stream ", b.stream, "), which ",
             access.write ? "writes" : "reads", " the same bytes: ", access.bytes, " bytes from ",
             static_cast<const void*>(access.data), ", first at offset ", at - access.data);
  }

  const GraphTrace& trace_;
  TraceOrder order_;
  Map ranges_;
};

}  // namespace

std::vector<const GraphTrace*> traces_of(std::span<Graph* const> graphs) {
  std::vector<const GraphTrace*> out;
  for (const Graph* graph : graphs)
    out.push_back(&graph->trace());
  return out;
}

const GraphTrace::Loop* loop_of(const GraphTrace& trace, std::size_t node) {
  for (const GraphTrace::Loop& loop : trace.loops)
    if (loop.begin <= node && node < loop.end) return &loop;
  return nullptr;
}

std::vector<std::int32_t> ranges_around(const GraphTrace& trace, const GraphTrace::Node& node) {
  std::vector<std::int32_t> out;
  for (std::int32_t at = node.range; at >= 0; at = trace.ranges[static_cast<std::size_t>(at)].outer)
    out.push_back(at);
  std::ranges::reverse(out);
  return out;
}

std::string_view phase_of(const GraphTrace& trace, const GraphTrace::Node& node) {
  std::string_view phase;
  for (const std::int32_t at : ranges_around(trace, node))
    if (const GraphTrace::Range& range = trace.ranges[static_cast<std::size_t>(at)];
        range.kind == ProfileKind::kPhase)
      phase = std::string_view(range.name).substr(0, range.name.find(' '));
  return phase;
}

std::string name_of(const GraphTrace::Range& range) {
  return range.number && range.kind != ProfileKind::kCollective
             ? concat(range.name, " ", *range.number)
             : range.name;
}

std::string path_of(const GraphTrace& trace, const GraphTrace::Node& node) {
  std::string out;
  for (const std::int32_t at : ranges_around(trace, node))
    out += concat(out.empty() ? "" : " > ", name_of(trace.ranges[static_cast<std::size_t>(at)]));
  return out;
}

std::string_view lane_of(StreamPriority stream) {
  return stream == StreamPriority::kNormal ? "compute"
         : stream == StreamPriority::kHigh ? "comm"
                                           : "update";
}

double accessed_bytes(const GraphTrace::Node& node) {
  double bytes = 0;
  for (const Access& access : node.accesses)
    bytes += static_cast<double>(access.bytes) * (access.reads_too ? 2 : 1);
  return bytes;
}

// A product of bf16 operands may have an fp32 result.
NodeWork work_of(const GraphTrace::Node& node) {
  NodeWork out{.name = node.name.substr(0, node.name.find(" #")),
               .shape = node.cost.shape,
               .flops = node.cost.flops,
               .bytes = node.cost.bytes > 0 ? node.cost.bytes : accessed_bytes(node)};
  if (!node.accesses.empty()) out.dtype = node.accesses.front().dtype;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    if (std::ranges::find(node.accesses, dtype, &Access::dtype) != node.accesses.end())
      out.dtype = dtype;
  return out;
}

void NodeSums::ran(const NodeRun& run) {
  Sum& sum = of_[run.node];
  ++sum.calls;
  sum.wall += run.end - run.begin;
  sum.thread += run.thread;
}

void check_races(const GraphTrace& trace) { RaceFinder(trace).run(); }

std::string trace_dot(const GraphTrace& trace) {
  std::map<int, std::string> columns;  // by stream
  std::string edges;
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    const GraphTrace::Node& node = trace.nodes[i];
    columns[node.stream] +=
        concat("    n", i, " [label=\"", i, " ", node.name, node.cost.shape.empty() ? "" : " ",
               node.cost.shape, "\\n", path_of(trace, node), "\"];\n");
    for (const std::uint32_t before : node.after)
      edges += concat("  n", before, " -> n", i, ";\n");
  }
  for (const GraphTrace::Loop& loop : trace.loops)
    edges += concat("  n", loop.end - 1, " -> n", loop.begin,
                    " [style=dashed, label=\"next pass\", constraint=false];\n");
  std::string out = "digraph step {\n  node [shape=box];\n";
  for (const auto& [stream, nodes] : columns)
    out +=
        concat("  subgraph cluster_", stream, " {\n    label=\"",
               lane_of(trace.streams[static_cast<std::size_t>(stream)]), "\";\n", nodes, "  }\n");
  return out + edges + "}\n";
}

}  // namespace muo
