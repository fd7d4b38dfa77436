#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"

namespace muo {

// Up to four extents, row-major. Rank 0 is a scalar with numel() == 1.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> dims) {
    for (const std::int64_t d : dims)
      dims_.at(rank_++) = d;
  }
  [[nodiscard]] constexpr std::size_t rank() const { return rank_; }
  [[nodiscard]] constexpr std::int64_t operator[](std::size_t i) const { return dims_.at(i); }
  [[nodiscard]] constexpr std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i < rank_; ++i)
      n *= dims_[i];
    return n;
  }
  [[nodiscard]] std::string text() const {  // "(3, 4)"
    std::string out = "(";
    for (std::size_t i = 0; i < rank_; ++i)
      out += (i == 0 ? "" : ", ") + std::to_string(dims_[i]);
    return out + ")";
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, 4> dims_{};
  std::size_t rank_ = 0;
};

// A non-owning, contiguous view, trivially copyable, so that operations keep it by value. A
// default-constructed Tensor has no data and means "not given".
struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;
  int device = -1;  // rank in the DeviceGroup

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] std::int64_t numel() const { return shape.numel(); }
  [[nodiscard]] std::int64_t bytes() const { return numel() * size_of(dtype); }

  template <class T>
  [[nodiscard]] T* as() const {
    MUO_CHECK(dtype_of<T> == dtype, "tensor of ", name_of(dtype));
    return reinterpret_cast<T*>(data);
  }
  // Access to a plain struct in device memory (dtype kBytes, at least sizeof(T) bytes).
  template <class T>
  [[nodiscard]] T* as_struct() const {
    static_assert(std::is_trivially_copyable_v<T>);
    MUO_CHECK(dtype == DType::kBytes && bytes() >= static_cast<std::int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(data);
  }

  // Rows [begin, end) along the first axis.
  [[nodiscard]] Tensor rows(std::int64_t begin, std::int64_t end) const {
    MUO_CHECK(shape.rank() >= 1 && 0 <= begin && begin <= end && end <= shape[0], "rows [", begin,
              ", ", end, ") of ", shape.text());
    const std::int64_t row = shape[0] == 0 ? 0 : bytes() / shape[0];
    Tensor out = *this;
    out.data += begin * row;
    out.shape = shape.rank() == 1   ? Shape{end - begin}
                : shape.rank() == 2 ? Shape{end - begin, shape[1]}
                : shape.rank() == 3 ? Shape{end - begin, shape[1], shape[2]}
                                    : Shape{end - begin, shape[1], shape[2], shape[3]};
    return out;
  }
  // Row `i`, without the first axis.
  [[nodiscard]] Tensor row(std::int64_t i) const {
    Tensor out = rows(i, i + 1);
    out.shape = shape.rank() == 1   ? Shape{}
                : shape.rank() == 2 ? Shape{shape[1]}
                : shape.rank() == 3 ? Shape{shape[1], shape[2]}
                                    : Shape{shape[1], shape[2], shape[3]};
    return out;
  }
  // The same elements with another shape.
  [[nodiscard]] Tensor view(const Shape& other) const {
    MUO_CHECK(other.numel() == numel(), shape.text(), " viewed as ", other.text());
    Tensor out = *this;
    out.shape = other;
    return out;
  }
  // The first `count` elements of dtype `other`, flat, in memory of dtype kBytes.
  [[nodiscard]] Tensor typed(DType other, std::int64_t count) const {
    MUO_CHECK(dtype == DType::kBytes && 0 <= count && count * size_of(other) <= bytes(), count,
              " elements of ", name_of(other), " in ", bytes(), " bytes");
    return {.data = data, .shape = {count}, .dtype = other, .device = device};
  }
  // `count` elements from element `begin`, flat.
  [[nodiscard]] Tensor elements(std::int64_t begin, std::int64_t count) const {
    MUO_CHECK(0 <= begin && 0 <= count && begin + count <= numel(), "elements [", begin, ", ",
              begin + count, ") of ", shape.text());
    Tensor out = *this;
    out.data += begin * size_of(dtype);
    out.shape = {count};
    return out;
  }
};
static_assert(std::is_trivially_copyable_v<Tensor>);

// Host memory as a tensor, for Stream::copy; as `data` is const, it may only be a source.
template <class T>
Tensor host_tensor(const T* data, const Shape& shape) {
  return {.data = reinterpret_cast<std::byte*>(const_cast<T*>(data)),
          .shape = shape,
          .dtype = dtype_of<T>,
          .device = -1};
}
// A plain struct in host memory.
template <class T>
Tensor host_struct(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {.data = reinterpret_cast<std::byte*>(const_cast<T*>(&value)),
          .shape = {static_cast<std::int64_t>(sizeof(T))},
          .dtype = DType::kBytes,
          .device = -1};
}

}  // namespace muo
