#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "data/token_data.h"

namespace muo::data {

struct RowsShape {
  std::int64_t seq_len = 1;        // a row is seq_len + 1 tokens
  std::int64_t rows_per_step = 1;  // of all ranks together
};

// The rows of training steps: a pure function of (data, packing, shape, seed, step, g), so that
// neither the world nor where a run was interrupted matters (decision order-of-data). Not
// thread-safe: a reader for each rank.
class TrainingRows {
 public:
  virtual ~TrainingRows() = default;
  [[nodiscard]] virtual const RowsShape& shape() const = 0;
  // row <- row g, 0 <= g < rows_per_step, of `step`: seq_len + 1 tokens. A reader is asked for rows
  // in ascending order of (step, g), any of which it may leave out. Allocates nothing but what the
  // first call does.
  virtual void read(std::int64_t step, std::int64_t g, std::span<std::int32_t> row) = 0;
};

// Of corpus.train, by its packing. kContiguous: blocks of the tokens (RowSampler). kBestFit: whole
// documents (RowPacker), each epoch in another order; the first call of read() packs all rows
// before the one that it reads, about 3 million documents a second. `corpus` outlives the reader.
std::unique_ptr<TrainingRows> make_training_rows(const Corpus& corpus, const RowsShape& shape,
                                                 std::uint64_t seed);

// The share of its documents' tokens that best-fit packing trains on, the rest is cropped: as the
// first rows have it, which take so many documents.
struct PackingUse {
  double share = 1;
  std::int64_t documents = 0;
};
PackingUse measure_packing(const Corpus& corpus, std::int64_t seq_len, std::uint64_t seed);

}  // namespace muo::data
