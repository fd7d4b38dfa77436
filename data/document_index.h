#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/token_data.h"

namespace muo::data {

// Tokens [begin, begin + count) of some data.
struct TokenSpan {
  std::int64_t begin = 0, count = 0;
};

// Where the documents of tokenized data begin. 8 bytes a document. Immutable.
class DocumentIndex {
 public:
  // Reads all of `data`, by several threads; a document goes from one token `first` to the next.
  // Tokens before the first of them belong to none.
  DocumentIndex(const TokenData& data, std::int32_t first, int threads);

  [[nodiscard]] std::int64_t size() const { return std::ssize(begins_) - 1; }
  [[nodiscard]] TokenSpan operator[](std::int64_t document) const {
    const std::int64_t* const begin = begins_.data() + document;
    return {.begin = begin[0], .count = begin[1] - begin[0]};
  }

 private:
  std::vector<std::int64_t> begins_;  // of each document, and the end of the last
};

}  // namespace muo::data
