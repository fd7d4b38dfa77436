#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/stream.h"

namespace muo {

// Partial order of a trace's nodes: a vector clock per node, one entry per stream. Entry s is the
// number of nodes of stream s that have run when the node starts. Throws Error for a trace whose
// streams are not in order, or whose nodes depend on later ones.
class TraceOrder {
 public:
  explicit TraceOrder(const GraphTrace& trace);

  [[nodiscard]] std::size_t streams() const { return streams_; }
  // Index of a node on its own stream, from 1.
  [[nodiscard]] std::uint32_t position(std::uint32_t node) const { return positions_[node]; }
  [[nodiscard]] std::size_t stream(std::uint32_t node) const { return stream_of_[node]; }
  [[nodiscard]] std::span<const std::uint32_t> clock(std::uint32_t node) const {
    return {clocks_.data() + node * streams_, streams_};
  }
  [[nodiscard]] bool before(std::uint32_t a, std::uint32_t b) const {
    return clock(b)[stream_of_[a]] >= positions_[a];
  }

 private:
  std::size_t streams_ = 0;
  std::vector<std::size_t> stream_of_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> clocks_;  // nodes x streams
};

std::vector<const GraphTrace*> traces_of(std::span<Graph* const> graphs);

// The loop that contains the node, or null.
const GraphTrace::Loop* loop_of(const GraphTrace& trace, std::size_t node);

// Ranges around the node, the outermost first.
std::vector<std::int32_t> ranges_around(const GraphTrace& trace, const GraphTrace::Node& node);
// First word of the name of the innermost kPhase range around the node; empty if there is none.
std::string_view phase_of(const GraphTrace& trace, const GraphTrace::Node& node);
// "micro-step 0 > backward > block 5 backward".
std::string path_of(const GraphTrace& trace, const GraphTrace::Node& node);
std::string name_of(const GraphTrace::Range& range);  // with its number
std::string_view lane_of(StreamPriority stream);      // "compute", "comm" or "update"

// One execution of a node.
struct NodeWork {
  std::string name;             // "gemm"; of a collective without its tag
  std::string shape;            // as in Cost
  DType dtype = DType::kBytes;  // the lowest precision of its tensors
  double flops = 0;             // 0: bound by memory
  double bytes = 0;
};
NodeWork work_of(const GraphTrace::Node& node);
// Bytes of all accesses of the node; a tensor that is read and written counts twice.
double accessed_bytes(const GraphTrace::Node& node);

// Sums the times of a graph's nodes over its launches.
class NodeSums final : public NodeObserver {
 public:
  struct Sum {
    std::int64_t calls = 0;
    double wall = 0;    // seconds
    double thread = 0;  // NodeRun::thread
  };
  explicit NodeSums(const GraphTrace& trace) : of_(trace.nodes.size()) {}
  void ran(const NodeRun& run) override;
  [[nodiscard]] std::span<const Sum> of() const { return of_; }  // by node

 private:
  std::vector<Sum> of_;
};

// Throws Error that names both nodes and the bytes if two nodes access the same bytes, at least one
// writes, and no path of dependencies orders them: a missing event (FastTrack, Flanagan & Freund
// 2009, with one clock per stream).
void check_races(const GraphTrace& trace);

// The graph in Graphviz' language: one node per task, with its number, name, shape and path, in a
// cluster per stream; edges from each node to those that wait for it, and a dashed one from the end
// of a loop's pass to the beginning of the next.
std::string trace_dot(const GraphTrace& trace);

}  // namespace muo
