#pragma once

#include <string_view>

#include "runtime/tensor.h"

namespace muo {

// What the front of an operation checks before it submits: each failure is an Error that names the
// operation, the argument, what it is and what it should be. All tensors of an operation are on
// one device.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(std::string_view operation) : operation_(operation) {}

  // Given (unless it has no elements), of this dtype and shape.
  void tensor(std::string_view name, const Tensor& t, const Shape& shape,
              DType dtype = DType::kF32);
  // Given, of this shape, fp32 or bf16.
  void fp32_or_bf16(std::string_view name, const Tensor& t, const Shape& shape);
  // Given, of this dtype and rank; `meaning` is the shape in letters, e.g. "(n, c)".
  void rank(std::string_view name, const Tensor& t, std::size_t rank, std::string_view meaning,
            DType dtype = DType::kF32);
  // Given, of this dtype, any shape.
  void any_shape(std::string_view name, const Tensor& t, DType dtype = DType::kF32);
  // No byte in common.
  void apart(std::string_view name, const Tensor& t, std::string_view other_name,
             const Tensor& other) const;
  // The same memory, or no byte in common.
  void same_or_apart(std::string_view name, const Tensor& t, std::string_view other_name,
                     const Tensor& other) const;
  void that(bool condition, std::string_view what) const;

 private:
  std::string_view operation_;
  int device_ = -1;
  bool has_device_ = false;
};

}  // namespace muo
