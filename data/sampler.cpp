#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/philox.h"

namespace muo {
namespace {

constexpr std::size_t kRounds = 6;
constexpr std::uint64_t kDrawsPerEpoch = 8;  // the offset, then the key of each round

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Image of i under a pseudo-random permutation of [0, count): a balanced Feistel network on the
// next even number of bits, applied again until the value falls inside (cycle walking; Black and
// Rogaway 2002, "Ciphers with arbitrary finite domains", sections 4 and 5). The network covers at
// most 4 * count values, or 64, so few applications are needed on average.
std::uint64_t permute(std::uint64_t i, std::uint64_t count,
                      const std::array<std::uint64_t, kRounds>& keys) {
  // Below 3 bits a half has too few round functions for the orders to look random.
  const int half_bits = std::max(3, (65 - std::countl_zero(count - 1)) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = i >> half_bits;
    std::uint64_t right = i & mask;
    for (const std::uint64_t key : keys) {
      const std::uint64_t next = left ^ (mix(right + key) & mask);
      left = right;
      right = next;
    }
    i = (left << half_bits) | right;
  } while (i >= count);
  return i;
}

}  // namespace

RowSampler::RowSampler(std::int64_t tokens, std::int64_t seq_len, std::int64_t rows_per_step,
                       std::uint64_t seed)
    : tokens_(tokens),
      seq_len_(seq_len),
      rows_per_step_(rows_per_step),
      // One block less than fits, so that the offset of an epoch can be anything up to a block.
      rows_per_epoch_(seq_len > 0 ? std::max<std::int64_t>(1, tokens / seq_len - 1) : 0),
      seed_(seed) {
  MUO_CHECK(seq_len > 0 && rows_per_step > 0, "sequence length ", seq_len, ", rows per step ",
            rows_per_step);
  if (tokens <= seq_len)
    throw InputError(concat("the data is too short: ", tokens, " tokens, but one row takes ",
                            seq_len + 1, " (sequence length ", seq_len,
                            " and the next token); give more data or a smaller --max-seq-len"));
}

std::int64_t RowSampler::position(std::int64_t step, std::int64_t g) const {
  MUO_CHECK(step >= 0 && step < std::numeric_limits<std::int64_t>::max() / rows_per_step_ &&
                0 <= g && g < rows_per_step_,
            "row ", g, " of ", rows_per_step_, " in step ", step);
  const std::int64_t row = step * rows_per_step_ + g;
  const auto first_draw = static_cast<std::uint64_t>(row / rows_per_epoch_) * kDrawsPerEpoch;
  const CounterRandom random(seed_, "data order");
  std::array<std::uint64_t, kRounds> keys{};
  for (std::size_t i = 0; i < kRounds; ++i)
    keys.at(i) = random.bits(first_draw + 1 + i);
  const auto block =
      static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(row % rows_per_epoch_),
                                        static_cast<std::uint64_t>(rows_per_epoch_), keys));
  // What is left beside the rows of an epoch goes before or after them.
  const auto left_over = static_cast<std::uint64_t>(tokens_ - 1 - rows_per_epoch_ * seq_len_);
  const auto offset = static_cast<std::int64_t>(random.bits(first_draw) % (left_over + 1));
  return offset + block * seq_len_;
}

}  // namespace muo
