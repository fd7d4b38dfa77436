#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/document_index.h"
#include "data/token_data.h"

namespace muo::data {

// The rows of seq_len targets in which held-out data is evaluated. They do not overlap, and the
// last may be short. Without `documents` they are blocks of the tokens, so that every token but the
// first is a target; with them, the documents in their order through a RowPacker.
class HeldOutRows {
 public:
  // `data` outlives this.
  HeldOutRows(const TokenData& data, const DocumentIndex* documents, std::int64_t seq_len);

  [[nodiscard]] std::int64_t size() const { return size_; }
  // Row i's tokens, the inputs and behind them the last target, into the beginning of `row`, which
  // has room for seq_len + 1; returns how many, at least 2.
  [[nodiscard]] std::int64_t read(std::int64_t i, std::span<std::int32_t> row) const;

 private:
  const TokenData* data_;
  std::int64_t seq_len_;
  std::int64_t size_ = 0;
  // Packed rows: their pieces, and where those of each row begin, and the last one's end.
  std::vector<TokenSpan> pieces_;
  std::vector<std::size_t> row_begins_;
};

}  // namespace muo::data
