#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "runtime/tensor.h"

namespace muo {

// Checks the arguments of an operation before it is submitted. Each failure throws an Error that
// names the operation, the argument, its value and the expected value. All tensors of an operation
// must be on one device. A tensor is "given" if it has memory or no elements.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(std::string_view operation) : operation_(operation) {}

  // The tensor is given, with this dtype and shape.
  void tensor(std::string_view name, const Tensor& t, const Shape& shape,
              DType dtype = DType::kF32);
  // The tensor is given and fp32 or bf16. It may have any shape, or must have this shape or this
  // rank (for `meaning` see rank()).
  void fp32_or_bf16(std::string_view name, const Tensor& t);
  void fp32_or_bf16(std::string_view name, const Tensor& t, const Shape& shape);
  void fp32_or_bf16(std::string_view name, const Tensor& t, std::size_t rank,
                    std::string_view meaning);
  // The tensor is given, with this dtype and rank; `meaning` is the shape in letters, e.g. "(n,
  // c)".
  void rank(std::string_view name, const Tensor& t, std::size_t rank, std::string_view meaning,
            DType dtype = DType::kF32);
  // The tensor is given, with this dtype and any shape.
  void any_shape(std::string_view name, const Tensor& t, DType dtype = DType::kF32);
  // The tensor is given, with this number of elements.
  void count(std::string_view name, const Tensor& t, std::int64_t n, DType dtype = DType::kF32);
  void fp32_or_bf16_count(std::string_view name, const Tensor& t, std::int64_t n);
  // The tensor is given, and its bytes hold a T.
  template <class T>
  void holds(std::string_view name, const Tensor& t) {
    any_shape(name, t, DType::kBytes);
    static_cast<void>(t.as_struct<T>());
  }
  // `weight` is a master weight of any shape, and `replica` its bf16 replica of the same shape.
  // The master is fp32, in which case the replica may be absent, or split: `weight` is its
  // uint16 lower half.
  void master(const Tensor& weight, const Tensor& replica);
  // The tensor is absent, or has the shape of the squares of a commit of `n` elements
  // (update_squares.h).
  void update_squares(const Tensor& squares, std::int64_t n);
  // The tensors share no byte.
  void no_overlap(std::string_view name, const Tensor& t, std::string_view other_name,
                  const Tensor& other) const;
  // No output shares a byte with an input or with another output.
  struct Named {
    std::string_view name;
    Tensor tensor;
  };
  void no_overlap(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs) const;
  // The tensors begin at the same address or share no byte.
  void same_or_no_overlap(std::string_view name, const Tensor& t, std::string_view other_name,
                          const Tensor& other) const;
  void that(bool condition, std::string_view what) const;

 private:
  std::string_view operation_;
  int device_ = -1;
  bool has_device_ = false;
};

}  // namespace muo
