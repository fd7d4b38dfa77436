#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device.h"
#include "runtime/memory/arena.h"
#include "runtime/stream.h"

namespace muo {

// Offsets for every tensor of a TraceArena, in its order: into one allocation of the rank's own or,
// from `bytes` on, into one of all ranks together.
struct MemoryPlan {
  std::vector<TensorSpec> specs;
  std::vector<std::int64_t> offsets;  // multiples of kAlignment
  std::int64_t bytes = 0;             // what to allocate, once
  std::int64_t run_bytes = 0;         // of it, kRun tensors
  std::int64_t common_bytes = 0;      // what all ranks allocate together
  // A rank's own and its share of what is common.
  [[nodiscard]] std::int64_t rank_bytes(int world) const {
    return bytes + (common_bytes + world - 1) / world;
  }
  // Sizes before sharing, by category.
  [[nodiscard]] std::int64_t category_bytes(MemoryCategory category) const;
};

// Two kStep tensors share bytes only if in each graph every use of one happens before every use of
// the other (decision planned-memory). Greedy by size (Pisarchyk & Lee 2020, "Efficient memory
// management for deep neural net inference"). A kSeries tensor is in use all through the graphs
// that use it, and shares with no other of its kind. `graphs` were captured on this arena and never
// run at the same time. A tensor that no graph uses shares with nobody. Throws Error as
// check_step_tensors() does.
MemoryPlan plan_memory(const TraceArena& arena, std::span<const GraphTrace* const> graphs);
// What the same would allocate if tensors of these categories took no memory.
std::int64_t bytes_without(std::span<const MemoryCategory> categories, const TraceArena& arena,
                           std::span<const GraphTrace* const> graphs);

// Hands out the planned tensors; throws Error if it is asked for others, or in another order.
class PlannedArena final : public Arena {
 public:
  // Allocates plan.bytes, zero-filled; where there are common_bytes, takes these from `common`.
  PlannedArena(Device& device, MemoryPlan plan, CommonMemory* common = nullptr);
  [[nodiscard]] Tensor tensor(const TensorSpec& spec) override;
  void zero(Stream& stream);  // all that is the rank's own

 private:
  int device_;
  MemoryPlan plan_;
  std::unique_ptr<Buffer> buffer_;
  std::byte* common_ = nullptr;
  std::size_t next_ = 0;
};

// Calls `visit` for every access of the graph to a tensor of the arena, in capture order, reads of
// a node before its writes: node, index of the tensor, offset in it, access. Throws Error for an
// access that leaves its tensor. Bytes that are not the arena's are skipped.
using TensorUse = std::function<void(std::uint32_t, std::size_t, std::int64_t, const Access&)>;
void for_each_use(const TraceArena& arena, const GraphTrace& graph, const TensorUse& visit);

}  // namespace muo
