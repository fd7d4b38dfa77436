#include "data/examples/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "base/check.h"

namespace muo::data {

PythonRandom::PythonRandom(std::uint64_t seed) {
  state_[0] = 19650218;
  const auto mixed = [this](std::size_t i, std::uint32_t factor) {
    return (state_[i - 1] ^ (state_[i - 1] >> 30)) * factor;
  };
  for (std::uint32_t i = 1; i < kWords; ++i)
    state_[i] = mixed(i, 1812433253) + i;
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed),
                                            static_cast<std::uint32_t>(seed >> 32)};
  const std::size_t length = key[1] == 0 ? 1 : 2;
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (std::size_t k = 0; k < kWords; ++k, advance())
    state_[i] = (state_[i] ^ mixed(i, 1664525)) + key.at(k % length) +
                static_cast<std::uint32_t>(k % length);
  for (std::size_t k = 1; k < kWords; ++k, advance())
    state_[i] = (state_[i] ^ mixed(i, 1566083941)) - static_cast<std::uint32_t>(i);
  state_[0] = 0x80000000;
}

void PythonRandom::next_words() {
  constexpr std::size_t kShift = 397;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000) | (state_[(i + 1) % kWords] & 0x7FFFFFFF);
    state_[i] =
        state_[(i + kShift) % kWords] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908B0DF : std::uint32_t{0});
  }
  at_ = 0;
}

std::uint32_t PythonRandom::word() {
  if (at_ == kWords) next_words();
  std::uint32_t y = state_.at(at_++);
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680;
  y ^= (y << 15) & 0xEFC60000;
  return y ^ (y >> 18);
}

std::uint64_t PythonRandom::below(std::uint64_t bound) {
  const int bits = 64 - std::countl_zero(bound);  // bit_width() is not an int in every library
  MUO_CHECK(0 < bound && bits <= 32, "bound is ", bound, ", expected 1 to 2^32");
  std::uint64_t value = bound;
  while (value >= bound)
    value = word() >> (32 - bits);
  return value;
}

// Python draws from a list of the remaining elements or, for large n, draws until it finds an
// unused one.
std::vector<std::size_t> PythonRandom::sample(std::size_t n, std::size_t k) {
  MUO_CHECK(k <= n, "cannot sample ", k, " of ", n, " elements");
  std::size_t fits = 21;
  if (k > 5) {
    std::size_t power = 1;  // the least power of 4 >= 3 k
    while (power < 3 * k)
      power *= 4;
    fits += power;
  }
  std::vector<std::size_t> out;
  out.reserve(k);
  if (n <= fits) {
    std::vector<std::size_t> left(n);
    std::iota(left.begin(), left.end(), std::size_t{0});
    for (std::size_t i = 0; i < k; ++i) {
      const std::uint64_t j = below(n - i);
      out.push_back(left[j]);
      left[j] = left[n - i - 1];
    }
    return out;
  }
  std::set<std::size_t> drawn;
  while (out.size() < k)
    if (const std::size_t j = below(n); drawn.insert(j).second) out.push_back(j);
  return out;
}

}  // namespace muo::data
