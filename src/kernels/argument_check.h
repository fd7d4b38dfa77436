#pragma once

#include <cstdint>
#include <initializer_list>
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
  // Given, fp32 or bf16, of any shape, of this one, or of this rank as below.
  void fp32_or_bf16(std::string_view name, const Tensor& t);
  void fp32_or_bf16(std::string_view name, const Tensor& t, const Shape& shape);
  void fp32_or_bf16(std::string_view name, const Tensor& t, std::size_t rank,
                    std::string_view meaning);
  // Given, of this dtype and rank; `meaning` is the shape in letters, e.g. "(n, c)".
  void rank(std::string_view name, const Tensor& t, std::size_t rank, std::string_view meaning,
            DType dtype = DType::kF32);
  // Given, of this dtype, any shape.
  void any_shape(std::string_view name, const Tensor& t, DType dtype = DType::kF32);
  // Given, of this many elements.
  void count(std::string_view name, const Tensor& t, std::int64_t n, DType dtype = DType::kF32);
  void fp32_or_bf16_count(std::string_view name, const Tensor& t, std::int64_t n);
  // Given, of bytes that hold a T.
  template <class T>
  void holds(std::string_view name, const Tensor& t) {
    any_shape(name, t, DType::kBytes);
    static_cast<void>(t.as_struct<T>());
  }
  // A master of any shape, fp32 or, split between it and the replica, uint16; its bf16 replica,
  // which may be absent where the master is fp32.
  void master(const Tensor& weight, const Tensor& replica);
  // Absent, or what a commit of `n` elements leaves of their squares (update_squares.h).
  void update_squares(const Tensor& squares, std::int64_t n);
  // No byte in common.
  void apart(std::string_view name, const Tensor& t, std::string_view other_name,
             const Tensor& other) const;
  // The same for each output and all inputs and other outputs.
  struct Named {
    std::string_view name;
    Tensor tensor;
  };
  void apart(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs) const;
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
