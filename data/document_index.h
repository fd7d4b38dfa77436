#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/token_data.h"

namespace muo::data {

// A range of tokens: [begin, begin + count).
struct TokenSpan {
  std::int64_t begin = 0, count = 0;
};

// The positions of the documents in tokenized data, at 8 bytes per document. Immutable.
class DocumentIndex {
 public:
  // Reads all of `data` on `threads` threads. A document extends from one token `first` to the
  // next; tokens before the first of them belong to no document.
  DocumentIndex(const TokenData& data, std::int32_t first, int threads);

  [[nodiscard]] std::int64_t size() const { return std::ssize(begins_) - 1; }
  [[nodiscard]] TokenSpan operator[](std::int64_t document) const {
    const std::int64_t* const begin = begins_.data() + document;
    return {.begin = begin[0], .count = begin[1] - begin[0]};
  }

 private:
  std::vector<std::int64_t> begins_;  // beginning of each document, then the end of the last
};

}  // namespace muo::data
