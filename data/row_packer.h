#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/document_index.h"

namespace muo::data {

// Packs documents into rows without gaps, each of which begins at the beginning of a document:
// nanochat's best-fit cropping (nanochat/dataloader.py). The longest waiting document that fits
// into the rest of the row is placed, the oldest one among equals. If none fits, the beginning of
// the shortest one fills the row, and the remainder of that document is dropped.
class RowPacker {
 public:
  static constexpr std::int64_t kWaiting = 1000;  // least number of documents to choose from
  static constexpr std::int64_t kRefill = 128;    // documents taken at a time

  // `next` returns the documents in order, none of them empty, and nothing after the last one. It
  // must remain callable for the lifetime of this object.
  RowPacker(std::int64_t row_tokens, std::function<std::optional<TokenSpan>()> next);

  // The pieces of the next row, valid until the next call. They have row_tokens tokens in total;
  // after the last document they may have fewer, and finally none.
  std::span<const TokenSpan> next_row();

  // Totals over the rows so far: their tokens, and the tokens of the documents that
  // were used for them.
  [[nodiscard]] std::int64_t packed_tokens() const { return packed_tokens_; }
  [[nodiscard]] std::int64_t document_tokens() const { return document_tokens_; }

 private:
  void refill();

  std::int64_t row_tokens_;
  std::function<std::optional<TokenSpan>()> next_;
  // Sorted by length; documents of equal length by age.
  std::vector<TokenSpan> waiting_;
  std::vector<TokenSpan> taken_, merged_;  // scratch of refill()
  std::vector<TokenSpan> pieces_;
  std::int64_t packed_tokens_ = 0, document_tokens_ = 0;
};

}  // namespace muo::data
