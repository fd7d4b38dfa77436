#pragma once

#include <cstdint>

namespace muo::data {

// Which tokens make up row g of step s: a pure function of (seed, s, g), whatever the world
// (decision order-of-data). Rows are numbered step * rows_per_step + g; each epoch of
// rows_per_epoch() of them visits every block of seq_len tokens once, in a pseudo-random order;
// blocks of different epochs start at different offsets. Nothing is stored per row, so sizes up to
// 2^62 tokens cost the same.
class RowSampler {
 public:
  // `tokens`: of the data; a row is seq_len + 1 of them, so neighbouring rows share one token.
  // rows_per_step: of all ranks together. Throws InputError if the data is shorter than one row.
  RowSampler(std::int64_t tokens, std::int64_t seq_len, std::int64_t rows_per_step,
             std::uint64_t seed);
  // First token of row g, 0 <= g < rows_per_step, of step s.
  [[nodiscard]] std::int64_t position(std::int64_t step, std::int64_t g) const;
  [[nodiscard]] std::int64_t rows_per_epoch() const { return rows_per_epoch_; }
  [[nodiscard]] std::int64_t rows_per_step() const { return rows_per_step_; }
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }

 private:
  std::int64_t tokens_, seq_len_, rows_per_step_, rows_per_epoch_;
  std::uint64_t seed_;
};

}  // namespace muo::data
