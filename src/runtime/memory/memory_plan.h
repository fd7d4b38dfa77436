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

// Offsets of all tensors of a TraceArena, in its order. Offsets below `bytes` are within the rank's
// own allocation, the others, minus `bytes`, within the one that all ranks share.
struct MemoryPlan {
  std::vector<TensorSpec> specs;
  std::vector<std::int64_t> offsets;  // multiples of kAlignment
  std::int64_t bytes = 0;             // size of the rank's allocation
  std::int64_t run_bytes = 0;         // part of `bytes` for kRun tensors
  std::int64_t common_bytes = 0;      // size of the allocation shared by all ranks
  // The rank's own bytes plus its share of the common ones.
  [[nodiscard]] std::int64_t rank_bytes(int world) const {
    return bytes + (common_bytes + world - 1) / world;
  }
  // Total size of a category's tensors, before memory is shared.
  [[nodiscard]] std::int64_t category_bytes(MemoryCategory category) const;
};

// Two kStep tensors share bytes only if in each graph every use of one happens before every use of
// the other (decision planned-memory); a tensor that is used before a loop and in it is in use
// until the loop ends. Greedy by size (Pisarchyk & Lee 2020, "Efficient memory management for deep
// neural net inference"). A kSeries tensor is in use during the whole of each graph that uses it,
// and does not share with other kSeries tensors. `graphs` must have been captured on this arena,
// and never run at the same time. A tensor that no graph uses shares with no other. Throws Error as
// check_step_tensors() does.
MemoryPlan plan_memory(const TraceArena& arena, std::span<const GraphTrace* const> graphs);
// MemoryPlan::bytes if tensors of these categories took no memory.
std::int64_t bytes_without(std::span<const MemoryCategory> categories, const TraceArena& arena,
                           std::span<const GraphTrace* const> graphs);

// Returns the planned tensors; throws Error if others are requested, or in another order.
class PlannedArena final : public Arena {
 public:
  // Allocates plan.bytes, zero-filled, and takes plan.common_bytes, if any, from `common`.
  PlannedArena(Device& device, MemoryPlan plan, CommonMemory* common = nullptr);
  [[nodiscard]] Tensor tensor(const TensorSpec& spec) override;
  void zero(Stream& stream);  // the rank's own memory

 private:
  int device_;
  MemoryPlan plan_;
  std::unique_ptr<Buffer> buffer_;
  std::byte* common_ = nullptr;
  std::size_t next_ = 0;
};

// Calls `visit` for every access of the graph to a tensor of the arena, in capture order, reads of
// a node before its writes. Arguments: node, index of the tensor, offset within it, access. Throws
// Error for an access beyond its tensor. Accesses outside the arena are skipped. The nodes of a
// loop are visited `passes` times, pass by pass.
using TensorUse = std::function<void(std::uint32_t, std::size_t, std::int64_t, const Access&)>;
void for_each_use(const TraceArena& arena, const GraphTrace& graph, const TensorUse& visit,
                  int passes = 1);

}  // namespace muo
