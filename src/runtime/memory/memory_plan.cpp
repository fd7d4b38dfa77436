#include "runtime/memory/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/graph_trace.h"
#include "runtime/memory/check_memory_plan.h"

namespace muo {
namespace {

bool same(const TensorSpec& a, const TensorSpec& b) {
  return a.name == b.name && a.shape == b.shape && a.dtype == b.dtype && a.category == b.category &&
         a.lifespan == b.lifespan && a.common == b.common;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Times of each tensor's uses in one graph, as vector clocks of its streams.
class Lifetimes {
 public:
  Lifetimes(const TraceArena& arena, const GraphTrace& graph)
      : order_(graph),
        last_(arena.specs().size() * order_.streams(), 0),
        first_(last_.size(), std::numeric_limits<std::uint32_t>::max()),
        used_(arena.specs().size(), false),
        first_use_(arena.specs().size(), 0) {
    const auto use_in = [&](std::uint32_t node, std::size_t tensor, std::int64_t, const Access&) {
      // A tensor that a loop shares with earlier nodes must last until the last pass ends.
      const GraphTrace::Loop* const loop = loop_of(graph, node);
      if (loop != nullptr && used_[tensor] && first_use_[tensor] < loop->begin)
        use(loop->end - 1, tensor);
      use(node, tensor);
    };
    for_each_use(arena, graph, use_in);
  }

  [[nodiscard]] bool used(std::size_t tensor) const { return used_[tensor]; }
  [[nodiscard]] bool both_used(std::size_t a, std::size_t b) const { return used_[a] && used_[b]; }
  // True if some use of `a` and some use of `b` are not ordered.
  [[nodiscard]] bool overlap(std::size_t a, std::size_t b) const {
    return used_[a] && used_[b] && !before(a, b) && !before(b, a);
  }

 private:
  void use(std::uint32_t node, std::size_t tensor) {
    if (!used_[tensor]) first_use_[tensor] = node;
    used_[tensor] = true;
    const std::size_t row = tensor * order_.streams();
    std::uint32_t& last = last_[row + order_.stream(node)];
    last = std::max(last, order_.position(node));
    for (std::size_t s = 0; s < order_.streams(); ++s)
      first_[row + s] = std::min(first_[row + s], order_.clock(node)[s]);
  }
  // True if every use of `a` has run before any use of `b` starts.
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const {
    const std::size_t n = order_.streams();
    for (std::size_t s = 0; s < n; ++s)
      if (last_[a * n + s] > first_[b * n + s]) return false;
    return true;
  }

  TraceOrder order_;
  // Tensors x streams. last_: index of the last use on the stream, or 0. first_: the least number
  // of the stream's nodes that have run when a use starts.
  std::vector<std::uint32_t> last_;
  std::vector<std::uint32_t> first_;
  std::vector<bool> used_;
  std::vector<std::uint32_t> first_use_;  // by tensor: its first node
};

bool is_run(const TensorSpec& spec) { return spec.lifespan == Lifespan::kRun; }
bool is_series(const TensorSpec& spec) { return spec.lifespan == Lifespan::kSeries; }

// Tensors of the categories `left_out` take no memory.
MemoryPlan place(const TraceArena& arena, std::span<const GraphTrace* const> graphs,
                 std::span<const MemoryCategory> left_out) {
  std::vector<Lifetimes> lifetimes;
  for (const GraphTrace* graph : graphs) {
    check_step_tensors(arena, *graph);
    lifetimes.emplace_back(arena, *graph);
  }
  const auto never_used = [&](std::size_t tensor) {
    return std::none_of(lifetimes.begin(), lifetimes.end(),
                        [&](const Lifetimes& graph) { return graph.used(tensor); });
  };
  const auto overlap = [&](std::size_t a, std::size_t b) {
    const int series = int{is_series(arena.specs()[a])} + int{is_series(arena.specs()[b])};
    return series == 2 || std::any_of(lifetimes.begin(), lifetimes.end(), [&](const Lifetimes& g) {
             return series == 1 ? g.both_used(a, b) : g.overlap(a, b);
           });
  };

  const auto tensors = arena.tensors();
  MemoryPlan plan;
  plan.specs.assign(arena.specs().begin(), arena.specs().end());
  plan.offsets.resize(tensors.size());
  std::vector<std::size_t> shared;
  std::vector<std::size_t> common;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (std::ranges::find(left_out, plan.specs[i].category) != left_out.end()) continue;
    if (plan.specs[i].common) {
      MUO_CHECK(is_run(plan.specs[i]), plan.specs[i].name, ": only kRun tensors can be common");
      common.push_back(i);
      continue;
    }
    if (!is_run(plan.specs[i]) && !never_used(i)) {
      shared.push_back(i);
      continue;
    }
    plan.offsets[i] = plan.bytes;
    plan.bytes += aligned(tensors[i].bytes());
    if (is_run(plan.specs[i])) plan.run_bytes += aligned(tensors[i].bytes());
  }
  const std::int64_t base = plan.bytes;
  std::stable_sort(shared.begin(), shared.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].bytes() > tensors[b].bytes();
  });

  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : shared) {
    const std::int64_t bytes = aligned(tensors[i].bytes());
    std::int64_t offset = base;
    for (const std::size_t j : placed) {
      if (plan.offsets[j] + tensors[j].bytes() <= offset || !overlap(i, j)) continue;
      if (offset + bytes <= plan.offsets[j]) break;
      offset = plan.offsets[j] + aligned(tensors[j].bytes());
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](std::int64_t o, std::size_t j) { return o < plan.offsets[j]; });
    placed.insert(at, i);
  }
  for (const std::size_t i : common) {
    plan.offsets[i] = plan.bytes + plan.common_bytes;
    plan.common_bytes += aligned(tensors[i].bytes());
  }
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const TraceArena& arena, std::span<const GraphTrace* const> graphs) {
  MemoryPlan plan = place(arena, graphs, {});
  check_memory_plan(plan, arena, graphs);
  return plan;
}

std::int64_t bytes_without(std::span<const MemoryCategory> categories, const TraceArena& arena,
                           std::span<const GraphTrace* const> graphs) {
  return place(arena, graphs, categories).bytes;
}

std::int64_t MemoryPlan::category_bytes(MemoryCategory category) const {
  std::int64_t sum = 0;
  for (const TensorSpec& spec : specs)
    if (spec.category == category) sum += aligned(spec.shape.numel() * size_of(spec.dtype));
  return sum;
}

PlannedArena::PlannedArena(Device& device, MemoryPlan plan, CommonMemory* common)
    : device_(device.rank()), plan_(std::move(plan)) {
  MUO_CHECK(plan_.offsets.size() == plan_.specs.size());
  buffer_ = device.allocate(plan_.bytes, "the planned tensors");
  if (plan_.common_bytes == 0) return;
  MUO_CHECK(common != nullptr, "the memory plan needs memory that is common to all ranks");
  common_ = common->take(device, plan_.common_bytes, "the planned tensors of all ranks");
}

void PlannedArena::zero(Stream& stream) {
  stream.zero(
      {.data = buffer_->data(), .shape = {plan_.bytes}, .dtype = DType::kBytes, .device = device_});
}

Tensor PlannedArena::tensor(const TensorSpec& spec) {
  MUO_CHECK(next_ < plan_.specs.size(), "tensor '", spec.name,
            "' is not in the memory plan, whose ", plan_.specs.size(), " tensors are all taken");
  const TensorSpec& planned = plan_.specs[next_];
  MUO_CHECK(same(spec, planned), "tensor '", spec.name, "' ", spec.shape.text(),
            " where the memory plan has '", planned.name, "' ", planned.shape.text());
  const std::int64_t offset = plan_.offsets[next_++];
  std::byte* data = planned.common ? common_ + (offset - plan_.bytes) : buffer_->data() + offset;
  return {.data = data, .shape = spec.shape, .dtype = spec.dtype, .device = device_};
}

void for_each_use(const TraceArena& arena, const GraphTrace& graph, const TensorUse& visit,
                  int passes) {
  const auto tensors = arena.tensors();  // by ascending address
  if (tensors.empty()) return;
  const auto visit_node = [&](std::uint32_t node) {
    for (const bool write : {false, true}) {
      for (const Access& access : graph.nodes[node].accesses) {
        if (access.write != write || access.bytes == 0 || !arena.owns(access.data)) continue;
        const auto after = std::upper_bound(
            tensors.begin(), tensors.end(), access.data,
            [](const std::byte* address, const Tensor& t) { return address < t.data; });
        const auto index = static_cast<std::size_t>(std::distance(tensors.begin(), after)) - 1;
        const std::int64_t offset = access.data - tensors[index].data;
        MUO_CHECK(offset + access.bytes <= tensors[index].bytes(), "'", graph.nodes[node].name,
                  "' (node ", node, ") accesses bytes [", offset, ", ", offset + access.bytes,
                  ") of '", arena.specs()[index].name, "', which has ", tensors[index].bytes());
        visit(node, index, offset, access);
      }
    }
  };
  std::uint32_t node = 0;
  const auto visit_up_to = [&](std::size_t end) {
    for (; node < end; ++node)
      visit_node(node);
  };
  for (const GraphTrace::Loop& loop : graph.loops) {
    visit_up_to(loop.begin);
    for (int pass = 0; pass < passes; ++pass) {
      node = loop.begin;
      visit_up_to(loop.end);
    }
  }
  visit_up_to(graph.nodes.size());
}

}  // namespace muo
