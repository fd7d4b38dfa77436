#pragma once

#include <cstdint>

namespace muo::data {

// Selects the tokens of row n of a run, as a pure function of (seed, n) that does not depend on
// world size or batch size (decision order-of-data). Each epoch of rows_per_epoch() rows visits
// every block of seq_len tokens once, in a pseudo-random order; the blocks of different epochs
// start at different offsets. Nothing is stored per row, so the cost is the same up to 2^62 tokens.
class RowSampler {
 public:
  // `tokens` is the length of the data. A row has seq_len + 1 tokens, so neighbouring rows share
  // one token. Throws InputError if the data is shorter than one row.
  RowSampler(std::int64_t tokens, std::int64_t seq_len, std::uint64_t seed);
  // Position of the first token of row n >= 0.
  [[nodiscard]] std::int64_t position(std::int64_t n) const;
  [[nodiscard]] std::int64_t rows_per_epoch() const { return rows_per_epoch_; }

 private:
  std::int64_t tokens_, seq_len_, rows_per_epoch_;
  std::uint64_t seed_;
};

}  // namespace muo::data
