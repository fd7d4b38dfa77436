#include "runtime/memory/arena.h"

#include "base/check.h"
#include "runtime/memory/fake_memory.h"

namespace muo {

std::byte* CommonMemory::take(Device& device, std::int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = taken_.at(static_cast<std::size_t>(device.rank()))++;
  if (index == buffers_.size()) buffers_.push_back(device.allocate(bytes, what));
  MUO_CHECK(buffers_[index]->bytes() == bytes, what, ": rank ", device.rank(), " requests ", bytes,
            " bytes, another rank ", buffers_[index]->bytes());
  return buffers_[index]->data();
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
