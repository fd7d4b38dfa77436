#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/box_muller.h"
#include "base/host_device.h"

namespace muo {

constexpr std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
  return std::uint64_t{a} * b;
}
constexpr std::uint32_t upper_half(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3):
// four 32-bit words as a pure function of a 128-bit counter and a 64-bit key. There is no state, so
// element i of a tensor is the same for any number of devices. `Word` is std::uint32_t, or a vector
// of them with the same functions (kernels/host/simd.h), which computes as many counters at once.
template <class Word = std::uint32_t>
constexpr std::array<Word, 4> philox(std::array<Word, 4> counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto p0 = wide_product(counter[0], 0xD2511F53U);
    const auto p1 = wide_product(counter[2], 0xCD9E8D57U);
    counter = {upper_half(p1) ^ counter[1] ^ Word{k0}, static_cast<Word>(p1),
               upper_half(p0) ^ counter[3] ^ Word{k1}, static_cast<Word>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1), with 24 random bits.
constexpr float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

// A named stream of random numbers: draw `index` depends only on (seed, name, index). Plain data,
// so that kernels can take it by value.
class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, std::string_view name) : key_(seed) {
    for (const char c : name)  // FNV-1a
      stream_ = (stream_ ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  }

  // The words of the draw whose index consists of these halves.
  template <class Word>
  [[nodiscard]] constexpr std::array<Word, 4> words(Word lower, Word upper) const {
    return philox<Word>(
        {lower, upper, Word{static_cast<std::uint32_t>(stream_)}, Word{upper_half(stream_)}}, key_);
  }
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(std::uint64_t index) const {
    return words(static_cast<std::uint32_t>(index), upper_half(index));
  }

  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const {
    const auto w = words(index);
    return (std::uint64_t{w[1]} << 32) | w[0];
  }
  [[nodiscard]] constexpr float uniform(std::uint64_t index) const {
    return uniform_of(words(index)[0]);
  }
  // Standard normal.
  [[nodiscard]] MUO_HOST_DEVICE float normal(std::uint64_t index) const {
    const auto w = words(index);
    return static_cast<float>(box_muller(w[0], w[1]));
  }

 private:
  std::uint64_t key_;
  std::uint64_t stream_ = 0xCBF29CE484222325ULL;
};

}  // namespace muo
