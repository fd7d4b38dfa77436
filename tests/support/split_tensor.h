#pragma once

#include "base/split_float.h"
#include "support/tensors.h"

namespace muo::test {

// A number after it has been split and joined.
inline float split_and_joined(float value) {
  const SplitFloat parts = split_float(value);
  return join_float(parts.upper, parts.lower);
}

// fp32 numbers in two tensors of their shape (base/split_float.h).
struct SplitTensor {
  explicit SplitTensor(const HostTensor& whole)
      : lower(whole.tensor().shape, DType::kU16), upper(whole.tensor().shape, DType::kBF16) {
    for (std::size_t i = 0; i < whole.values().size(); ++i) {
      const SplitFloat parts = split_float(whole.values()[i]);
      upper.values<BF16>()[i] = parts.upper;
      lower.values<std::uint16_t>()[i] = parts.lower;
    }
  }
  [[nodiscard]] HostTensor joined() const {
    HostTensor out(lower.tensor().shape);
    for (std::size_t i = 0; i < out.values().size(); ++i)
      out.values()[i] = join_float(upper.values<BF16>()[i], lower.values<std::uint16_t>()[i]);
    return out;
  }

  HostTensor lower, upper;
};

}  // namespace muo::test
