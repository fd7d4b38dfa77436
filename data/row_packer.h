#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/document_index.h"

namespace muo::data {

// Packs documents into rows that begin at documents' beginnings and have no gaps: nanochat's
// best-fit cropping (nanochat/dataloader.py). The longest waiting document that fits what is left
// of the row goes in, of equals the oldest; if none fits, the beginning of the shortest fills the
// row and the rest of it is dropped.
class RowPacker {
 public:
  static constexpr std::int64_t kWaiting = 1000;  // documents to choose from, at least
  static constexpr std::int64_t kRefill = 128;    // documents that are taken at a time

  // `next`: the documents in their order, none of them empty; nothing after the last one. It lives
  // as long as this.
  RowPacker(std::int64_t row_tokens, std::function<std::optional<TokenSpan>()> next);

  // The pieces of the next row, valid until the next call. Together they have row_tokens tokens;
  // after the last document perhaps fewer, and then none.
  std::span<const TokenSpan> next_row();

  // Of the rows so far: tokens in them, and those of the documents that were used for them.
  [[nodiscard]] std::int64_t packed_tokens() const { return packed_tokens_; }
  [[nodiscard]] std::int64_t document_tokens() const { return document_tokens_; }

 private:
  void refill();

  std::int64_t row_tokens_;
  std::function<std::optional<TokenSpan>()> next_;
  // By length, equals in the order they came.
  std::vector<TokenSpan> waiting_;
  std::vector<TokenSpan> taken_, merged_;  // scratch of refill()
  std::vector<TokenSpan> pieces_;
  std::int64_t packed_tokens_ = 0, document_tokens_ = 0;
};

}  // namespace muo::data
