#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "runtime/device.h"
#include "runtime/tensor.h"

namespace muo {

// Memory shared by ranks that can all address it. The ranks synchronise their accesses themselves.
// A rank's n-th call returns the n-th buffer, so all must request the same buffers in the same
// order. Buffers live as long as this object.
class CommonMemory {
 public:
  explicit CommonMemory(int world) : taken_(static_cast<std::size_t>(world), 0) {}

  // Allocates on `device` of the first rank that calls. Throws Error if ranks request different
  // sizes.
  [[nodiscard]] std::byte* take(Device& device, std::int64_t bytes, std::string_view what);

 private:
  std::mutex mutex_;
  std::vector<std::size_t> taken_;  // by rank: number of buffers taken
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

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
  kCache,
  kMetrics,
};
constexpr auto names_of(MemoryCategory) {
  return name_list("weights", "gradients", "masters", "momentum", "adam state", "update", "staging",
                   "activations", "workspace", "input", "cache", "metrics");
}

// kRun: keeps its contents between launches and shares its memory with no other tensor. kStep:
// keeps nothing between launches of a graph, so it may share memory with other kStep tensors that
// the captured graphs never use at the same time. kSeries: keeps its contents between launches of
// the graphs that use it, until another graph runs: it may share memory with kStep tensors of those
// other graphs.
enum class Lifespan : std::uint8_t { kRun, kStep, kSeries };

struct TensorSpec {
  std::string name = {};
  Shape shape = {};
  DType dtype = DType::kF32;
  MemoryCategory category = MemoryCategory::kActivations;
  Lifespan lifespan = Lifespan::kStep;
  bool common = false;  // one tensor for all ranks (CommonMemory); requires kRun
};

// Allocates the tensors of a training run. The run is built twice: first on a TraceArena, to record
// which tensors it needs and when, then on a PlannedArena.
class Arena {
 public:
  virtual ~Arena() = default;
  [[nodiscard]] virtual Tensor tensor(const TensorSpec& spec) = 0;
};

// Returns tensors at addresses without memory, and records their specs.
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

}  // namespace muo
