#include "runtime/trace_order.h"

#include <algorithm>

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

}  // namespace muo
