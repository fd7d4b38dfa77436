#pragma once

#include <cstdint>

namespace muo::data {

// Which tokens make up row n of a run: a pure function of (seed, n), whatever the world and the
// batch (decision order-of-data). Each epoch of rows_per_epoch() rows visits every block of seq_len
// tokens once, in a pseudo-random order; blocks of different epochs start at different offsets.
// Nothing is stored per row, so sizes up to 2^62 tokens cost the same.
class RowSampler {
 public:
  // `tokens`: of the data; a row is seq_len + 1 of them, so neighbouring rows share one token.
  // Throws InputError if the data is shorter than one row.
  RowSampler(std::int64_t tokens, std::int64_t seq_len, std::uint64_t seed);
  // First token of row n, n >= 0.
  [[nodiscard]] std::int64_t position(std::int64_t n) const;
  [[nodiscard]] std::int64_t rows_per_epoch() const { return rows_per_epoch_; }

 private:
  std::int64_t tokens_, seq_len_, rows_per_epoch_;
  std::uint64_t seed_;
};

}  // namespace muo::data
