#include "runtime/memory/arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/memory/fake_memory.h"

namespace muo {
namespace {

bool same(const TensorSpec& a, const TensorSpec& b) {
  return a.name == b.name && a.shape == b.shape && a.dtype == b.dtype && a.category == b.category &&
         a.lifespan == b.lifespan && a.common == b.common;
}

}  // namespace

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

PlannedArena::PlannedArena(Device& device, MemoryPlan plan, CommonMemory* common)
    : device_(device.rank()), plan_(std::move(plan)) {
  MUO_CHECK(plan_.offsets.size() == plan_.specs.size());
  buffer_ = device.allocate(plan_.bytes, "the planned tensors");
  if (plan_.common_bytes == 0) return;
  MUO_CHECK(common != nullptr, "the memory plan has tensors that are common to ranks of a host");
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

}  // namespace muo
