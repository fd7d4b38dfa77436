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

const GraphTrace::Loop* loop_of(const GraphTrace& trace, std::size_t node) {
  for (const GraphTrace::Loop& loop : trace.loops)
    if (loop.begin <= node && node < loop.end) return &loop;
  return nullptr;
}

void check_races(const GraphTrace& trace) { RaceFinder(trace).run(); }

std::string trace_dot(const GraphTrace& trace) {
  std::map<int, std::string> columns;  // by stream
  std::string edges;
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    const GraphTrace::Node& node = trace.nodes[i];
    columns[node.stream] += concat("    n", i, " [label=\"", i, " ", node.name, "\"];\n");
    for (const std::uint32_t before : node.after)
      edges += concat("  n", before, " -> n", i, ";\n");
  }
  for (const GraphTrace::Loop& loop : trace.loops)
    edges += concat("  n", loop.end - 1, " -> n", loop.begin,
                    " [style=dashed, label=\"next pass\", constraint=false];\n");
  std::string out = "digraph step {\n  node [shape=box];\n";
  for (const auto& [stream, nodes] : columns)
    out += concat("  subgraph cluster_", stream, " {\n    label=\"stream ", stream, "\";\n", nodes,
                  "  }\n");
  return out + edges + "}\n";
}

}  // namespace muo
