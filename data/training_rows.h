#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "data/token_data.h"

namespace muo::data {

// The rows of a run, numbered from its start on: a pure function of (data, packing, seq_len, seed,
// n), so that neither the world, nor the batch, nor where a run was interrupted matters (decision
// order-of-data). Not thread-safe: a reader for each rank.
class TrainingRows {
 public:
  virtual ~TrainingRows() = default;
  // row <- row n, n >= 0: seq_len + 1 tokens. A reader is asked for rows in ascending order, any of
  // which it may leave out. Allocates nothing but what the first call does.
  virtual void read(std::int64_t n, std::span<std::int32_t> row) = 0;
};

// Of corpus.train, by its packing. kContiguous: blocks of the tokens (RowSampler). kBestFit: whole
// documents (RowPacker), each epoch in another order; the first call of read() packs all rows
// before the one that it reads, about 3 million documents a second. `corpus` outlives the reader.
std::unique_ptr<TrainingRows> make_training_rows(const Corpus& corpus, std::int64_t seq_len,
                                                 std::uint64_t seed);

// The share of its documents' tokens that best-fit packing trains on, the rest is cropped: as the
// first rows have it, which take so many documents.
struct PackingUse {
  double share = 1;
  std::int64_t documents = 0;
};
PackingUse measure_packing(const Corpus& corpus, std::int64_t seq_len, std::uint64_t seed);

}  // namespace muo::data
