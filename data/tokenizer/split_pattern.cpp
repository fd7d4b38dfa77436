#include "data/tokenizer/split_pattern.h"

#include <algorithm>
#include <array>

#include "data/tokenizer/fancy_pattern.h"

namespace muo::data {
namespace {

// Patterns that all libraries read alike, as unit tests and scripts/check_tokenizers.py verify.
struct Known {
  std::string_view name;       // for read_split()
  std::string_view tiktoken;   // in the syntax of tiktoken and PCRE2
  std::string_view oniguruma;  // in Oniguruma's syntax, if different
  bool matches_all = true;     // the matches cover any text
};

constexpr std::array kKnown = {
    Known{"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {}},
    Known{{}, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {}},
    // In Oniguruma {1,3}+ is not possessive, and $ is the end of a line.
    Known{"gpt4",
          R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++)"
          R"([\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
          R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})| ?[^\s\p{L}\p{N}]++)"
          R"([\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s)"},
    // The earlier form of cl100k_base, and of its copies.
    Known{
        {},
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
        R"(\s*[\r\n]|\s+(?!\S)|\s+)",
        {}},
    Known{"gpt4o",
          R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
          R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
          R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          {}},
    Known{"nanochat",
          R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++)"
          R"([\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
          {}},
    // The pattern of Llama 3 and Qwen.
    Known{{},
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
          R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          {}},
    Known{{},
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
          R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          {}},
    // The patterns of the tokenizers' Digits.
    Known{{}, R"(\p{N})", {}, false},
    Known{{}, R"(\p{N}+)", {}, false},
};

constexpr std::string_view oniguruma_of(const Known& known) {
  return known.oniguruma.empty() ? known.tiktoken : known.oniguruma;
}

template <class Is>
const Known* find_known(const Is& is) {
  const auto* const found = std::find_if(kKnown.begin(), kKnown.end(), is);
  return found == kKnown.end() ? nullptr : found;
}

}  // namespace

Split read_split(std::string_view name_or_pattern, std::string_view source) {
  const Known* const known = find_known([&](const Known& each) {
    return each.tiktoken == name_or_pattern || (!each.name.empty() && each.name == name_or_pattern);
  });
  if (known != nullptr && known->matches_all)
    return {.pattern = std::string(oniguruma_of(*known)), .behavior = SplitBehavior::kIsolated};
  return {.pattern = translate_fancy_pattern(name_or_pattern, source),
          .behavior = SplitBehavior::kRemoved,
          .invert = true};
}

std::string_view pcre2_pattern(const Split& split) {
  const Known* const known =
      find_known([&](const Known& each) { return oniguruma_of(each) == split.pattern; });
  if (known == nullptr) return {};
  const bool isolates =
      split.behavior == SplitBehavior::kIsolated ||
      (known->matches_all && split.behavior == SplitBehavior::kRemoved && split.invert);
  return isolates ? known->tiktoken : std::string_view();
}

}  // namespace muo::data
