#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace muo
