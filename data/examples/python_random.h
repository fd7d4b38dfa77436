#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace muo::data {

// Bit-exact equivalent of Python's random.Random(seed) for an integer seed (CPython 3.9 and newer):
// the Mersenne Twister of Matsumoto and Nishimura (1998), seeded by their init_by_array.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);

  std::uint32_t word();  // 32 random bits
  // Uniform in [0, bound); 0 < bound <= 2^32.
  std::uint64_t below(std::uint64_t bound);

  // random.shuffle
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i-- > 1;)
      std::swap(values[i], values[below(i + 1)]);
  }
  // random.sample(range(n), k); k <= n.
  std::vector<std::size_t> sample(std::size_t n, std::size_t k);

 private:
  static constexpr std::size_t kWords = 624;
  void next_words();

  std::array<std::uint32_t, kWords> state_{};
  std::size_t at_ = kWords;  // index of the next word; kWords: all are used
};

}  // namespace muo::data
