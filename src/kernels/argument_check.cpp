#include "kernels/argument_check.h"

#include "kernels/update_squares.h"

namespace muo {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  return a && b && a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

}  // namespace

void ArgumentCheck::any_shape(std::string_view name, const Tensor& t, DType dtype) {
  MUO_CHECK(t || t.numel() == 0, operation_, ": ", name, " is missing");
  MUO_CHECK(t.dtype == dtype, operation_, ": ", name, " is ", name_of(t.dtype), ", expected ",
            name_of(dtype));
  if (!has_device_) device_ = t.device;
  has_device_ = true;
  MUO_CHECK(t.device == device_, operation_, ": ", name, " is on device ", t.device,
            ", expected device ", device_);
}

void ArgumentCheck::tensor(std::string_view name, const Tensor& t, const Shape& shape,
                           DType dtype) {
  any_shape(name, t, dtype);
  MUO_CHECK(t.shape == shape, operation_, ": ", name, " is ", t.shape.text(), ", expected ",
            shape.text());
}

void ArgumentCheck::fp32_or_bf16(std::string_view name, const Tensor& t) {
  any_shape(name, t, t.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32);
}

void ArgumentCheck::fp32_or_bf16(std::string_view name, const Tensor& t, const Shape& shape) {
  fp32_or_bf16(name, t);
  tensor(name, t, shape, t.dtype);
}

void ArgumentCheck::fp32_or_bf16(std::string_view name, const Tensor& t, std::size_t rank,
                                 std::string_view meaning) {
  fp32_or_bf16(name, t);
  this->rank(name, t, rank, meaning, t.dtype);
}

void ArgumentCheck::count(std::string_view name, const Tensor& t, std::int64_t n, DType dtype) {
  any_shape(name, t, dtype);
  MUO_CHECK(t.numel() == n, operation_, ": ", name, " has ", t.numel(), " elements, expected ", n);
}

void ArgumentCheck::fp32_or_bf16_count(std::string_view name, const Tensor& t, std::int64_t n) {
  fp32_or_bf16(name, t);
  count(name, t, n, t.dtype);
}

void ArgumentCheck::rank(std::string_view name, const Tensor& t, std::size_t rank,
                         std::string_view meaning, DType dtype) {
  any_shape(name, t, dtype);
  MUO_CHECK(t.shape.rank() == rank, operation_, ": ", name, " is ", t.shape.text(), ", expected ",
            meaning);
}

void ArgumentCheck::master(const Tensor& weight, const Tensor& replica) {
  const bool split = weight.dtype == DType::kU16;
  any_shape("weight", weight, split ? DType::kU16 : DType::kF32);
  if (split || replica) tensor("replica", replica, weight.shape, DType::kBF16);
}

void ArgumentCheck::update_squares(const Tensor& squares, std::int64_t n) {
  if (!squares) return;
  rank("squares", squares, 3, "(pieces, parts, 3)", DType::kF64);
  const std::int64_t pieces = squares.shape[0];
  MUO_CHECK(pieces > 0 && n % pieces == 0, operation_, ": ", n, " elements cannot be divided into ",
            pieces, " equal pieces");
  tensor("squares", squares, {pieces, commit_parts(n / pieces), kUpdateSquares}, DType::kF64);
}

void ArgumentCheck::no_overlap(std::string_view name, const Tensor& t, std::string_view other_name,
                               const Tensor& other) const {
  MUO_CHECK(!overlap(t, other), operation_, ": ", name, " overlaps ", other_name);
}

void ArgumentCheck::no_overlap(std::initializer_list<Named> outputs,
                               std::initializer_list<Named> inputs) const {
  for (const Named& out : outputs) {
    for (const Named& in : inputs)
      no_overlap(out.name, out.tensor, in.name, in.tensor);
    for (const Named& other : outputs)
      if (&other != &out) no_overlap(out.name, out.tensor, other.name, other.tensor);
  }
}

void ArgumentCheck::same_or_no_overlap(std::string_view name, const Tensor& t,
                                       std::string_view other_name, const Tensor& other) const {
  MUO_CHECK(t.data == other.data || !overlap(t, other), operation_, ": ", name, " overlaps ",
            other_name, ", but begins at another address");
}

void ArgumentCheck::that(bool condition, std::string_view what) const {
  MUO_CHECK(condition, operation_, ": ", what);
}

}  // namespace muo
