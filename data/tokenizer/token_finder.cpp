#include "data/tokenizer/token_finder.h"

#include <algorithm>

namespace muo::data {

TokenFinder::TokenFinder(std::span<const SpecialToken> tokens)
    : tokens_(tokens.begin(), tokens.end()) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& left, const auto& right) {
    return left.text.size() > right.text.size();
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!tokens_[i].text.empty())
      starts_.at(static_cast<unsigned char>(tokens_[i].text.front())).push_back(i);
}

void TokenFinder::cut(std::string_view text,
                      const std::function<void(std::string_view)>& text_between,
                      const std::function<void(const SpecialToken&)>& token) const {
  for (std::size_t at = 0; at < text.size();) {
    const Match match = find(text, at);
    if (match.at > at) text_between(text.substr(at, match.at - at));
    if (match.token == nullptr) break;
    token(*match.token);
    at = match.at + match.token->text.size();
  }
}

TokenFinder::Match TokenFinder::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = tokens_.empty() ? text.size() : from; at < text.size(); ++at)
    for (const std::size_t i : starts_[static_cast<unsigned char>(text[at])])
      if (text.substr(at).starts_with(tokens_[i].text)) return {at, &tokens_[i]};
  return {text.size(), nullptr};
}

}  // namespace muo::data
