#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "data/token_data.h"

namespace muo::data {

// The rows of a run, numbered from its start. They are a pure function of (data, packing, seq_len,
// seed, n), independent of world size, batch size and interruptions (decision order-of-data). Not
// thread-safe: each rank has its own reader.
class TrainingRows {
 public:
  virtual ~TrainingRows() = default;
  // Writes row n >= 0, which has seq_len + 1 tokens, to `row`. Rows must be read in ascending
  // order, but may be skipped. Only the first call allocates memory.
  virtual void read(std::int64_t n, std::span<std::int32_t> row) = 0;
};

// Makes the rows of corpus.train according to its packing. kContiguous: blocks of tokens
// (RowSampler). kBestFit: whole documents (RowPacker), in another order in each epoch; the first
// call of read() packs all rows before the requested one, at about 3 million documents per second.
// `corpus` must outlive the reader.
std::unique_ptr<TrainingRows> make_training_rows(const Corpus& corpus, std::int64_t seq_len,
                                                 std::uint64_t seed);

// The share of the documents' tokens that best-fit packing trains on (the rest is cropped),
// measured on the first rows, which use `documents` documents.
struct PackingUse {
  double share = 1;
  std::int64_t documents = 0;
};
PackingUse measure_packing(const Corpus& corpus, std::int64_t seq_len, std::uint64_t seed);

}  // namespace muo::data
