#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/common_memory.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

enum class MemoryCategory : std::uint8_t {
  kWeights,
  kGradients,
  kMasters,
  kMomentum,
  kAdamState,
  kUpdate,
  kStaging,
  kActivations,
  kWorkspace,
  kInput,
  kMetrics,
};
inline constexpr int kMemoryCategories = 11;
std::string_view name_of(MemoryCategory category);

// kRun: holds its contents between launches, shares with nobody. kStep: holds nothing between
// launches of a graph, so it may share memory with other kStep tensors that the captured graphs
// never use at the same time.
enum class Lifespan : std::uint8_t { kRun, kStep };

struct TensorSpec {
  std::string name = {};
  Shape shape = {};
  DType dtype = DType::kF32;
  MemoryCategory category = MemoryCategory::kActivations;
  Lifespan lifespan = Lifespan::kStep;
  bool common = false;  // one for all ranks (CommonMemory); kRun
};

// Where the parts of a training run get their tensors. The run is built twice: first on a
// TraceArena, to see what it needs and when, then on a PlannedArena.
class Arena {
 public:
  virtual ~Arena() = default;
  [[nodiscard]] virtual Tensor tensor(const TensorSpec& spec) = 0;
};

// Hands out address ranges that no memory backs, and remembers who got which.
class TraceArena final : public Arena {
 public:
  explicit TraceArena(int device);
  [[nodiscard]] Tensor tensor(const TensorSpec& spec) override;
  [[nodiscard]] std::span<const TensorSpec> specs() const { return specs_; }
  [[nodiscard]] std::span<const Tensor> tensors() const { return tensors_; }
  [[nodiscard]] bool owns(const std::byte* address) const;

 private:
  int device_;
  std::uintptr_t next_address_;
  std::vector<TensorSpec> specs_;
  std::vector<Tensor> tensors_;
};

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
// management for deep neural net inference"). `graphs` were captured on this arena and never run at
// the same time. A tensor that no graph uses shares with nobody. Throws Error as
// check_step_tensors() does.
MemoryPlan plan_memory(const TraceArena& arena, std::span<const GraphTrace* const> graphs);

// Throws Error, naming tensor and node, if a node reads bytes of a kStep tensor that no earlier
// node of the graph has written (they hold garbage), or touches bytes beyond the end of any tensor
// of the arena. A write that also reads (Access) counts as a write.
void check_step_tensors(const TraceArena& arena, const GraphTrace& graph);

// Throws Error, naming both tensors and the node, if a graph that runs in the places of the plan
// would use a tensor again after another has taken bytes of it, or in no order with another. It
// judges bytes and nodes, not the reasoning by which plan_memory() placed them.
void check_plan(const MemoryPlan& plan, const TraceArena& arena,
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

// Throws Error, naming both nodes and the bytes, if two nodes of the trace touch the same bytes, at
// least one writes, and no path of dependencies orders them: a forgotten event (FastTrack,
// Flanagan & Freund 2009, with one clock per stream).
void check_races(const GraphTrace& trace);

}  // namespace muo
