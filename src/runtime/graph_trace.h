#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/stream.h"

namespace muo {

// Which nodes of a trace must have run before which: a vector clock per node, one entry per stream.
// Entry s counts the nodes of stream s that have run when the node starts. Throws Error for a trace
// whose streams are not in order, or whose nodes follow later ones.
class TraceOrder {
 public:
  explicit TraceOrder(const GraphTrace& trace);

  [[nodiscard]] std::size_t streams() const { return streams_; }
  // The index of a node on its own stream, from 1.
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

// Throws Error, naming both nodes and the bytes, if two nodes of the trace touch the same bytes, at
// least one writes, and no path of dependencies orders them: a forgotten event (FastTrack,
// Flanagan & Freund 2009, with one clock per stream).
void check_races(const GraphTrace& trace);

// The graph in Graphviz's language: a node for each task, with its number and name, in a
// column for its stream; an edge from each node that it waits for.
std::string trace_dot(const GraphTrace& trace);

}  // namespace muo
