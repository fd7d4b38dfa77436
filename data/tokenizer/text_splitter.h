#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/split_pattern.h"

namespace muo::data {

// Cuts text into pieces: by PCRE2 and its JIT where pcre2_pattern() has an expression, else by
// Oniguruma. With several splits each one cuts the pieces of the one before, each as if it were all
// text. Bytes that are not UTF-8 end the text before them and are a piece. Thread-safe.
class TextSplitter {
 public:
  // Throws InputError, naming `source`, for an expression that is not one.
  TextSplitter(const std::vector<Split>& splits, std::string_view source);
  ~TextSplitter();
  TextSplitter(const TextSplitter&) = delete;
  TextSplitter& operator=(const TextSplitter&) = delete;

  using Piece = std::function<void(std::string_view)>;
  // Calls `piece` for the pieces of `text` from `begin` until one ends at `end` or behind, and
  // returns where. Throws InputError for a text that an expression gives up on. Unless cuts_text(),
  // `begin` has to be 0 and the pieces are those of all of `text`.
  // NOLINTNEXTLINE(modernize-use-nodiscard): `piece` is called for its effect
  std::size_t split(std::string_view text, std::size_t begin, std::size_t end,
                    const Piece& piece) const;
  // Whether a piece depends on nothing before it, nor on much behind.
  [[nodiscard]] bool cuts_text() const;

 private:
  struct Expression;
  class Matcher;
  std::vector<std::unique_ptr<Expression>> expressions_;
};

}  // namespace muo::data
