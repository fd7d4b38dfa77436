#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace muo {

// Cuts text into pieces by regular expressions (Perl's, by PCRE2 and its JIT): each match is a
// piece, and so is what lies between two. With several expressions each one cuts the pieces of the
// one before. Bytes that are not UTF-8 end the text before them and are a piece. Thread-safe.
class TextSplitter {
 public:
  // Throws InputError, naming `source`, for an expression that is not one.
  TextSplitter(const std::vector<std::string>& patterns, std::string_view source);
  ~TextSplitter();
  TextSplitter(const TextSplitter&) = delete;
  TextSplitter& operator=(const TextSplitter&) = delete;

  using Piece = std::function<void(std::string_view)>;
  // Calls `piece` for the pieces of `text` from `begin` until one ends at `end` or behind, and
  // returns where. Throws InputError for a text that an expression gives up on.
  // NOLINTNEXTLINE(modernize-use-nodiscard): `piece` is called for its effect
  std::size_t split(std::string_view text, std::size_t begin, std::size_t end,
                    const Piece& piece) const;

 private:
  struct Expression;
  class Matcher;
  std::vector<std::unique_ptr<Expression>> expressions_;
};

}  // namespace muo
