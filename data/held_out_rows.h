#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/document_index.h"
#include "data/token_data.h"

namespace muo::data {

// The non-overlapping rows of seq_len targets in which held-out data is evaluated; the last row may
// be shorter. Without `documents`, rows are blocks of the tokens, so that every token except the
// first is a target. With `documents`, a RowPacker packs them in order.
class HeldOutRows {
 public:
  // `data` must outlive this object.
  HeldOutRows(const TokenData& data, const DocumentIndex* documents, std::int64_t seq_len);

  [[nodiscard]] std::int64_t size() const { return size_; }
  // Writes the tokens of row i, i.e. its inputs followed by the last target, to the beginning of
  // `row`, which has room for seq_len + 1. Returns their number, which is at least 2.
  [[nodiscard]] std::int64_t read(std::int64_t i, std::span<std::int32_t> row) const;

 private:
  const TokenData* data_;
  std::int64_t seq_len_;
  std::int64_t size_ = 0;
  // Of packed rows: the pieces; and the index of each row's first piece, followed by the
  // number of pieces.
  std::vector<TokenSpan> pieces_;
  std::vector<std::size_t> row_begins_;
};

}  // namespace muo::data
