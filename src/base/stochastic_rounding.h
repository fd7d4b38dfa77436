#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"
#include "base/host_device.h"
#include "base/philox.h"

// Stochastic rounding of fp32 to bf16 (Gupta et al. 2015, "Deep learning with limited numerical
// precision", arXiv 1502.02551, section 3): rounds up or down at random, so that the expected value
// is the number itself. Changes smaller than half of bf16's spacing thus accumulate instead of
// being lost.
namespace muo {

// Rounds `value` to one of its two bf16 neighbours, which differ in magnitude by 2^16 fp32 units in
// the last place: to the larger one if the low 16 bits of `value` plus `noise`, uniform in [0,
// 2^16), carry. Values that are exactly bf16, and NaNs, are unchanged.
MUO_HOST_DEVICE constexpr BF16 round_stochastically(float value, std::uint32_t noise) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>((nan ? bits | 0x400000U : bits + noise) >> 16)};
}

// Parameters for rounding the elements of a logical tensor from index `begin` on. Plain data, for
// kernels.
struct StochasticRounding {
  CounterRandom random{0, ""};  // its stream has the tensor's name
  std::int64_t begin = 0;
};

// The noise for one update of a tensor: 32 bits per element, a pure function of the tensor's name,
// the number of previous updates and the element's index in the logical tensor. Philox computes
// only two keys per update; an element then costs two 32-bit products (the constants of C. Wellons'
// hash "lowbias32"). Philox for every element would take a GPU as long as the memory traffic of the
// update.
class RoundingNoise {
 public:
  MUO_HOST_DEVICE constexpr RoundingNoise(const CounterRandom& random, std::int64_t updates) {
    const auto words = random.words(static_cast<std::uint64_t>(updates));
    first_ = words[0];
    second_ = words[1];
  }
  MUO_HOST_DEVICE constexpr std::uint32_t operator()(std::int64_t element) const {
    const auto index = static_cast<std::uint64_t>(element);
    std::uint32_t x = static_cast<std::uint32_t>(index) ^ first_;
    x = (x ^ (x >> 16)) * 0x7FEB352DU;
    x ^= second_ + upper_half(index) * 0x9E3779B9U;
    x = (x ^ (x >> 15)) * 0x846CA68BU;
    return x ^ (x >> 16);
  }

 private:
  std::uint32_t first_ = 0, second_ = 0;
};
// Independent noise for two roundings of the same element.
MUO_HOST_DEVICE constexpr std::uint32_t first_noise(std::uint32_t bits) { return bits >> 16; }
MUO_HOST_DEVICE constexpr std::uint32_t second_noise(std::uint32_t bits) { return bits & 0xFFFFU; }

}  // namespace muo
