#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace muo {

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3):
// four 32-bit words as a pure function of a 128-bit counter and a 64-bit key. There is no state,
// so element i of a tensor is the same however many devices share the work.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// A named stream of random numbers: draw `index` depends on (seed, name, index) only.
class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, std::string_view name) : key_(seed) {
    for (const char c : name)  // FNV-1a
      stream_ = (stream_ ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  }

  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const {
    const auto words = block(index);
    return (std::uint64_t{words[1]} << 32) | words[0];
  }
  // Uniform in [0, 1), 24 bits.
  [[nodiscard]] constexpr float uniform(std::uint64_t index) const {
    return static_cast<float>(block(index)[0] >> 8) * 0x1p-24F;
  }
  // Standard normal, by Box and Muller from two words of the block, in double.
  [[nodiscard]] float normal(std::uint64_t index) const {
    const auto words = block(index);
    const double u = (static_cast<double>(words[0]) + 1.0) * 0x1p-32;  // (0, 1]
    const double v = static_cast<double>(words[1]) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }

 private:
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t index) const {
    return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                   static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                  key_);
  }

  std::uint64_t key_;
  std::uint64_t stream_ = 0xCBF29CE484222325ULL;
};

}  // namespace muo
