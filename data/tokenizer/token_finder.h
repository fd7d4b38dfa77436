#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace muo::data {

// Finds tokens that a text holds word for word. Of several at one place the longest.
class TokenFinder {
 public:
  explicit TokenFinder(std::span<const SpecialToken> tokens);

  // Calls `text_between` for what lies before, between and behind tokens, where it is not empty,
  // and `token` for each, in their order.
  void cut(std::string_view text, const std::function<void(std::string_view)>& text_between,
           const std::function<void(const SpecialToken&)>& token) const;
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  [[nodiscard]] std::span<const SpecialToken> tokens() const { return tokens_; }

 private:
  struct Match {
    std::size_t at = 0;
    const SpecialToken* token = nullptr;  // null: no more, and `at` is the end of the text
  };
  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;

  std::vector<SpecialToken> tokens_;                  // the longest first
  std::array<std::vector<std::size_t>, 256> starts_;  // which of them begin with a byte
};

}  // namespace muo::data
