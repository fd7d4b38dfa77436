#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/philox.h"

namespace muo::data {

// A pseudo-random permutation of [0, count), by a Feistel network. It stores nothing per element,
// so its cost does not depend on the size.
class Permutation {
 public:
  static constexpr std::size_t kDraws = 6;

  // Uses kDraws draws of `random`, from `first_draw` on. `count` must be above 0.
  Permutation(std::uint64_t count, const CounterRandom& random, std::uint64_t first_draw);
  // The image of i < count.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t count_;
  std::array<std::uint64_t, kDraws> keys_{};  // one key per round
};

}  // namespace muo::data
