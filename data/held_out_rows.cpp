#include "data/held_out_rows.h"

#include <algorithm>
#include <optional>

#include "data/row_packer.h"

namespace muo::data {

HeldOutRows::HeldOutRows(const TokenData& data, const DocumentIndex* documents,
                         std::int64_t seq_len)
    : data_(&data), seq_len_(seq_len) {
  if (documents == nullptr) {
    size_ = (data.size() - 1 + seq_len - 1) / seq_len;
    return;
  }
  RowPacker packer(seq_len + 1, [&, i = std::int64_t{0}]() mutable {
    return i < documents->size() ? std::optional((*documents)[i++]) : std::nullopt;
  });
  for (;;) {
    const std::span<const TokenSpan> row = packer.next_row();
    std::int64_t tokens = 0;
    for (const TokenSpan& piece : row)
      tokens += piece.count;
    if (tokens < 2) break;  // the end, or a row without a target
    row_begins_.push_back(pieces_.size());
    pieces_.insert(pieces_.end(), row.begin(), row.end());
  }
  size_ = std::ssize(row_begins_);
  row_begins_.push_back(pieces_.size());
}

std::int64_t HeldOutRows::read(std::int64_t i, std::span<std::int32_t> row) const {
  const auto piece = [&](std::int64_t begin, std::int64_t count) {
    data_->read(begin, row.first(static_cast<std::size_t>(count)));
    row = row.subspan(static_cast<std::size_t>(count));
    return count;
  };
  if (row_begins_.empty()) {
    const std::int64_t begin = i * seq_len_;
    return piece(begin, std::min(seq_len_ + 1, data_->size() - begin));
  }
  std::int64_t tokens = 0;
  const auto index = static_cast<std::size_t>(i);
  for (std::size_t p = row_begins_[index]; p < row_begins_[index + 1]; ++p)
    tokens += piece(pieces_[p].begin, pieces_[p].count);
  return tokens;
}

}  // namespace muo::data
