#include "runtime/memory/check_memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "base/check.h"
#include "runtime/graph_trace.h"
#include "runtime/memory/memory_plan.h"

namespace muo {
namespace {

// A set of bytes, as disjoint ranges.
class ByteSet {
 public:
  void add(std::int64_t begin, std::int64_t end) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second >= begin) --it;
    while (it != ranges_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    ranges_.emplace_hint(it, begin, end);
  }
  [[nodiscard]] bool contains(std::int64_t begin, std::int64_t end) const {
    const auto it = ranges_.upper_bound(begin);
    return it != ranges_.begin() && std::prev(it)->second >= end;
  }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;  // begin: end
};

// For each byte of the planned memory, the tensor that accessed it last, in capture order.
class Ownership {
 public:
  Ownership(const MemoryPlan& plan, const GraphTrace& graph)
      : plan_(plan),
        graph_(graph),
        taken_by_(plan.specs.size(), kNobody),
        first_use_(plan.specs.size(), graph.nodes.size()) {}

  void use(std::uint32_t node, std::size_t tensor, std::int64_t begin, std::int64_t end) {
    if (node < last_node_) begin_pass(node);
    last_node_ = node;
    first_use_[tensor] = std::min<std::size_t>(first_use_[tensor], node);
    check_whole(tensor,
                [&] { return concat("'", graph_.nodes[node].name, "' (node ", node, ")"); });
    const auto first = split(begin);
    const auto last = split(end);
    for (auto it = first; it != last; ++it)
      if (it->second != kNobody && it->second != tensor) taken_by_[it->second] = tensor;
    first->second = tensor;
    owners_.erase(std::next(first), last);
  }

  // Throws Error, naming `who()` as the user, if another tensor has taken bytes of `tensor`.
  template <class Who>
  void check_whole(std::size_t tensor, const Who& who) const {
    MUO_CHECK(taken_by_[tensor] == kNobody, who(), " uses '", plan_.specs[tensor].name, "' after '",
              plan_.specs[taken_by_[tensor]].name, "' has overwritten bytes of it");
  }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  using Map = std::map<std::int64_t, std::size_t>;  // first byte: owner, up to the next key

  Map::iterator split(std::int64_t at) {
    const auto next = owners_.lower_bound(at);
    if (next != owners_.end() && next->first == at) return next;
    const std::size_t owner = next == owners_.begin() ? kNobody : std::prev(next)->second;
    return owners_.emplace_hint(next, at, owner);
  }

  // Another pass of the loop that has `node`: tensors that it writes first are written anew.
  void begin_pass(std::uint32_t node) {
    const GraphTrace::Loop* const loop = loop_of(graph_, node);
    if (loop == nullptr) return;
    const auto is_new = [&](std::size_t tensor) { return first_use_[tensor] >= loop->begin; };
    for (std::size_t tensor = 0; tensor < taken_by_.size(); ++tensor)
      if (is_new(tensor)) taken_by_[tensor] = kNobody;
    for (auto& [begin, owner] : owners_)
      if (owner != kNobody && is_new(owner)) owner = kNobody;
  }

  const MemoryPlan& plan_;
  const GraphTrace& graph_;
  std::vector<std::size_t> taken_by_;
  std::vector<std::size_t> first_use_;  // by tensor: its first node
  std::uint32_t last_node_ = 0;
  Map owners_;
};

}  // namespace

void check_step_tensors(const TraceArena& arena, const GraphTrace& graph) {
  std::vector<ByteSet> written(arena.specs().size());
  for_each_use(
      arena, graph,
      [&](std::uint32_t node, std::size_t tensor, std::int64_t offset, const Access& access) {
        const TensorSpec& spec = arena.specs()[tensor];
        if (spec.lifespan != Lifespan::kStep) return;
        if (access.write) return written[tensor].add(offset, offset + access.bytes);
        MUO_CHECK(
            written[tensor].contains(offset, offset + access.bytes), "'", graph.nodes[node].name,
            "' (node ", node, ") reads '", spec.name,
            "', which keeps nothing between steps, before the graph has written all of bytes [",
            offset, ", ", offset + access.bytes, ")");
      });
}

void check_memory_plan(const MemoryPlan& plan, const TraceArena& arena,
                       std::span<const GraphTrace* const> graphs) {
  MUO_CHECK(plan.specs.size() == arena.specs().size() &&
            plan.offsets.size() == arena.specs().size());
  // An arbitrary base address that differs from all addresses outside the arena.
  const std::byte* memory = arena.tensors().empty() ? nullptr : arena.tensors()[0].data;
  for (const GraphTrace* graph : graphs) {
    Ownership ownership(plan, *graph);
    GraphTrace placed;
    placed.nodes.reserve(graph->nodes.size());
    for (const GraphTrace::Node& node : graph->nodes)
      placed.nodes.push_back(
          {.name = node.name, .stream = node.stream, .after = node.after, .accesses = {}});
    std::vector<bool> kept(plan.specs.size(), false);  // between launches
    for_each_use(arena, *graph,
                 [&](std::uint32_t node, std::size_t tensor, std::int64_t, const Access&) {
                   if (plan.specs[tensor].lifespan != Lifespan::kSeries || kept[tensor]) return;
                   kept[tensor] = true;
                   const std::int64_t begin = plan.offsets[tensor];
                   ownership.use(node, tensor, begin, begin + arena.tensors()[tensor].bytes());
                 });
    // Two passes of each loop: the second one finds what the first one has overwritten.
    for_each_use(
        arena, *graph,
        [&](std::uint32_t node, std::size_t tensor, std::int64_t offset, const Access& access) {
          const std::int64_t begin = plan.offsets[tensor] + offset;
          ownership.use(node, tensor, begin, begin + access.bytes);
          placed.nodes[node].accesses.push_back({memory + begin, access.bytes, access.write});
        },
        2);
    for (std::size_t tensor = 0; tensor < kept.size(); ++tensor)
      if (kept[tensor]) ownership.check_whole(tensor, [] { return "the next launch"; });
    check_races(placed);
  }
}

}  // namespace muo
