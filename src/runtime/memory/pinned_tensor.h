#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/device.h"
#include "runtime/tensor.h"

namespace muo {

// A tensor in pinned host memory of its own, for streams of `device` to copy from and to. Unlike a
// caller's memory it outlives every such copy: a wait that throws leaves copies pending, and a
// DeviceGroup frees what its devices allocated only when their streams have ended.
class PinnedTensor {
 public:
  // `what` names the memory in the error when there is not enough.
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
