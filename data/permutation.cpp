#include "data/permutation.h"

#include <algorithm>
#include <bit>

namespace muo::data {
namespace {

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit affects every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t count, const CounterRandom& random, std::uint64_t first_draw)
    : count_(count) {
  for (std::size_t i = 0; i < kDraws; ++i)
    keys_.at(i) = random.bits(first_draw + i);
}

// A balanced Feistel network on the next even number of bits, applied repeatedly until the value is
// below `count` (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains",
// sections 4 and 5). The network covers at most max(4 * count, 64) values, so few applications are
// needed on average.
std::uint64_t Permutation::operator()(std::uint64_t i) const {
  // With halves of fewer than 3 bits, there are too few round functions for the
  // orders to look random.
  const int half_bits = std::max(3, (65 - std::countl_zero(count_ - 1)) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = i >> half_bits;
    std::uint64_t right = i & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mix(right + key) & mask);
      left = right;
      right = next;
    }
    i = (left << half_bits) | right;
  } while (i >= count_);
  return i;
}

}  // namespace muo::data
