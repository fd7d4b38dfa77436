#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "runtime/tensor.h"
#include "support/kernel_stream.h"

namespace muo::test {

// Owns the memory of one tensor, aligned like device memory and initially zero. A tensor without
// elements has a valid address, too.
class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(const Shape& shape, DType dtype = DType::kF32, int device = 0) {
    tensor_.shape = shape;
    tensor_.dtype = dtype;
    tensor_.device = device;
    memory_ = SharedMemory(tensor_.bytes());
    tensor_.data = memory_.data();
  }
  template <class T>
  HostTensor(const Shape& shape, const std::vector<T>& values) : HostTensor(shape, dtype_of<T>) {
    MUO_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel());
    std::copy(values.begin(), values.end(), tensor_.as<T>());
  }

  // A view of this tensor, for operations.
  operator Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

  template <class T = float>
  [[nodiscard]] std::span<T> values() const {
    return {tensor_.as<T>(), static_cast<std::size_t>(tensor_.numel())};
  }
  [[nodiscard]] std::vector<double> doubles() const {  // from fp32 or bf16
    std::vector<double> out;
    if (tensor_.dtype == DType::kBF16)
      for (const BF16 v : values<BF16>())
        out.push_back(double{to_f32(v)});
    else
      out.assign(values().begin(), values().end());
    return out;
  }
  [[nodiscard]] HostTensor rounded(DType dtype) const {  // a copy of an fp32 tensor in fp32 or bf16
    if (dtype == DType::kF32) return copy();
    HostTensor out(tensor_.shape, DType::kBF16, tensor_.device);
    std::ranges::transform(values(), out.values<BF16>().begin(), to_bf16);
    return out;
  }
  [[nodiscard]] HostTensor widened() const {  // a copy of an fp32 or bf16 tensor in fp32
    const std::vector<double> wide = doubles();
    return {tensor_.shape, std::vector<float>(wide.begin(), wide.end())};
  }
  [[nodiscard]] HostTensor copy() const {
    HostTensor out(tensor_.shape, tensor_.dtype, tensor_.device);
    std::copy_n(tensor_.data, tensor_.bytes(), out.tensor_.data);
    return out;
  }

 private:
  SharedMemory memory_;
  Tensor tensor_;
};

// Normally distributed values times `scale`, which differ for each `name`.
inline void fill_normal(const HostTensor& tensor, std::string_view name, float scale = 1.0F,
                        std::uint64_t seed = 1) {
  const CounterRandom random(seed, name);
  std::uint64_t i = 0;
  for (float& v : tensor.values())
    v = scale * random.normal(i++);
}

inline HostTensor random_tensor(const Shape& shape, std::string_view name, float scale = 1.0F,
                                std::uint64_t seed = 1) {
  HostTensor out(shape);
  fill_normal(out, name, scale, seed);
  return out;
}

// Uniformly distributed integers in [0, bound).
inline HostTensor random_tokens(std::int64_t n, std::int32_t bound, std::string_view name,
                                std::uint64_t seed = 1) {
  HostTensor out({n}, DType::kI32);
  const CounterRandom random(seed, name);
  std::uint64_t i = 0;
  for (std::int32_t& v : out.values<std::int32_t>())
    v = static_cast<std::int32_t>(random.bits(i++) % static_cast<std::uint64_t>(bound));
  return out;
}

}  // namespace muo::test
