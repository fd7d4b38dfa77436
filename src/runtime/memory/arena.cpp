#include "runtime/memory/arena.h"

#include "base/check.h"
#include "runtime/memory/fake_memory.h"

namespace muo {
std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kWeights:
      return "weights";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kMasters:
      return "masters";
    case MemoryCategory::kMomentum:
      return "momentum";
    case MemoryCategory::kAdamState:
      return "adam state";
    case MemoryCategory::kUpdate:
      return "update";
    case MemoryCategory::kStaging:
      return "staging";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kWorkspace:
      return "workspace";
    case MemoryCategory::kInput:
      return "input";
    case MemoryCategory::kMetrics:
      return "metrics";
  }
  return "?";
}

TraceArena::TraceArena(int device)
    : device_(device), next_address_(fake_base(device, FakeOwner::kArena)) {}

Tensor TraceArena::tensor(const TensorSpec& spec) {
  Tensor tensor{.shape = spec.shape, .dtype = spec.dtype, .device = device_};
  MUO_CHECK(tensor.numel() >= 0, spec.name, " of ", spec.shape.text());
  tensor.data = take_fake(next_address_, tensor.bytes());
  specs_.push_back(spec);
  tensors_.push_back(tensor);
  return tensor;
}

bool TraceArena::owns(const std::byte* address) const {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  return value >= fake_base(device_, FakeOwner::kArena) && value < next_address_;
}

}  // namespace muo
