#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/split_pattern.h"

namespace muo::data {

// Splits text into pieces: with PCRE2 and its JIT if pcre2_pattern() has an expression, else with
// Oniguruma. If there are several splits, each one splits the pieces of the previous one, as if
// each piece were a whole text. Bytes that are not UTF-8 end the text before them and form a
// piece. Thread-safe.
class TextSplitter {
 public:
  // Throws InputError, which names `source`, for an invalid expression.
  TextSplitter(const std::vector<Split>& splits, std::string_view source);
  ~TextSplitter();
  TextSplitter(const TextSplitter&) = delete;
  TextSplitter& operator=(const TextSplitter&) = delete;

  using Piece = std::function<void(std::string_view)>;
  // Calls `piece` for the pieces of `text` from `begin` on until one ends at `end` or later, and
  // returns the end of that piece. Throws InputError for a text on which matching exceeds its
  // limits. Unless cuts_text(), `begin` must be 0, and all of `text` is split.
  // NOLINTNEXTLINE(modernize-use-nodiscard): `piece` is called for its effect
  std::size_t split(std::string_view text, std::size_t begin, std::size_t end,
                    const Piece& piece) const;
  // Whether a piece depends on nothing before it, and on little after it.
  [[nodiscard]] bool cuts_text() const;

 private:
  struct Expression;
  class Matcher;
  std::vector<std::unique_ptr<Expression>> expressions_;
};

}  // namespace muo::data
