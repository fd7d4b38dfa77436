#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace muo::data {

// Finds tokens whose text occurs in a text, the longest one at each position.
class TokenFinder {
 public:
  explicit TokenFinder(std::span<const SpecialToken> tokens);

  // Calls `token` for each token found, and `text_between` for the non-empty texts before, between
  // and after them, in order.
  void cut(std::string_view text, const std::function<void(std::string_view)>& text_between,
           const std::function<void(const SpecialToken&)>& token) const;
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  [[nodiscard]] std::span<const SpecialToken> tokens() const { return tokens_; }

 private:
  struct Match {
    std::size_t at = 0;
    const SpecialToken* token = nullptr;  // null: no further match, `at` is the end of the text
  };
  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;

  std::vector<SpecialToken> tokens_;                  // longest first
  std::array<std::vector<std::size_t>, 256> starts_;  // indices of tokens by their first byte
};

}  // namespace muo::data
