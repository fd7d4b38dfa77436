#pragma once

#include <cstdint>

#include "base/split_float.h"
#include "kernels/host/simd_bf16.h"
#include "runtime/tensor.h"

namespace muo::host {

// Masters as kernels read and write them: fp32, or (weight of uint16) split between it and the
// replica (base/split_float.h).
struct WholeMaster {
  float* __restrict weight;
  [[nodiscard]] float load(std::int64_t i) const { return weight[i]; }
  void store(std::int64_t i, float value) const { weight[i] = value; }
};
struct SplitMaster {
  std::uint16_t* __restrict lower;
  BF16* __restrict upper;
  [[nodiscard]] float load(std::int64_t i) const { return join_float(upper[i], lower[i]); }
  void store(std::int64_t i, float value) const {
    const SplitFloat parts = split_float(value);
    upper[i] = parts.upper;
    lower[i] = parts.lower;
  }
};

// body(master), then the replica where it is another tensor.
template <class Body>
void with_master(const Tensor& weight, const Tensor& replica, const Body& body) {
  if (weight.dtype == DType::kU16)
    return body(SplitMaster{weight.as<std::uint16_t>(), replica.as<BF16>()});
  body(WholeMaster{weight.as<float>()});
  if (replica) simd::copy(replica.as<BF16>(), weight.as<float>(), weight.numel());
}

}  // namespace muo::host
