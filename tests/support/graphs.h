#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/philox.h"
#include "runtime/stream.h"

namespace muo::test {

// A graph of `nodes` nodes on `streams` streams, each of which is in order, with random events
// between them and without accesses.
inline GraphTrace random_graph(std::uint64_t seed, int streams, int nodes) {
  const CounterRandom random(seed, "graph");
  std::uint64_t draw = 0;
  GraphTrace trace;
  std::vector<std::int64_t> last(static_cast<std::size_t>(streams), -1);
  for (int i = 0; i < nodes; ++i) {
    const std::size_t stream = random.bits(draw++) % last.size();
    std::vector<std::uint32_t> after;
    for (std::size_t s = 0; s < last.size(); ++s)
      if (last[s] >= 0 && (s == stream || random.bits(draw++) % 4 == 0))
        after.push_back(static_cast<std::uint32_t>(last[s]));
    std::sort(after.begin(), after.end());
    last[stream] = i;
    trace.nodes.push_back({.name = "node " + std::to_string(i),
                           .stream = static_cast<int>(stream),
                           .after = std::move(after),
                           .accesses = {}});
  }
  return trace;
}

// The order of nodes, by transitive closure: slow, and independent of streams and clocks.
class Reachability {
 public:
  explicit Reachability(const GraphTrace& trace)
      : before_(trace.nodes.size(), std::vector<bool>(trace.nodes.size(), false)) {
    for (std::size_t i = 0; i < trace.nodes.size(); ++i)
      for (const std::uint32_t a : trace.nodes[i].after) {
        before_[i][a] = true;
        for (std::size_t j = 0; j < i; ++j)
          if (before_[a][j]) before_[i][j] = true;
      }
  }
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const { return before_[b][a]; }

 private:
  std::vector<std::vector<bool>> before_;
};

}  // namespace muo::test
