#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/device.h"
#include "runtime/tensor.h"

namespace muo {

// A tensor in its own pinned host memory, for copies by streams of `device`. Unlike a caller's
// memory it outlives every copy: a wait that throws leaves copies pending, but a DeviceGroup frees
// memory of its devices only when their streams are idle.
class PinnedTensor {
 public:
  // `what` names the memory in the error if there is not enough.
  PinnedTensor(Device& device, const Shape& shape, DType dtype, std::string_view what)
      : memory_(device.allocate_pinned(shape.numel() * size_of(dtype), what)),
        tensor_{.data = memory_->data(), .shape = shape, .dtype = dtype, .device = device.rank()} {}

  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  template <class T>
  [[nodiscard]] std::span<T> values() const {
    return {tensor_.as<T>(), static_cast<std::size_t>(tensor_.numel())};
  }

 private:
  std::unique_ptr<Buffer> memory_;
  Tensor tensor_;
};

}  // namespace muo
