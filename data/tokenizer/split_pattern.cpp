#include "data/tokenizer/split_pattern.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace muo::data {
namespace {

// Patterns that all libraries read alike, as unit tests verify.
struct Known {
  std::string_view name;       // for --pattern
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
    Known{"llama3",
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
          R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          {}},
    Known{{},  // of Qwen
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

// Parts of an expression that tiktoken may read differently from Oniguruma, and what to write.
struct Difference {
  std::string_view text, instead;
  bool in_class = false, outside = true;
};
constexpr std::array kDifferences = {
    Difference{"$", R"(\z for the end of the text, (?=\n|\z) for that of a line)"},
    Difference{"^", R"(\A)"},
    Difference{"}+", "(?>X{1,3}) for X{1,3}+"},
    Difference{"}?", "X{2} for X{2}?, and XX?? for X{1,2}?"},
    Difference{"(?", "(...) without a name or flags, and both cases of a letter, as in [aA]"},
    Difference{"[]", R"([\])", true},
    Difference{"[^]", R"([^\])", true},
    Difference{"[:", R"(a property, such as \p{P} for [:punct:])", true, false},
    Difference{"--", R"(&&[^...], or \- for the character)", true, false},
    Difference{"-[", R"(\- for the character)", true, false},
    Difference{"~~", "it without this operator", true, false},
    Difference{R"(\w)", R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])", true},
    Difference{R"(\W)", R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])", true},
    Difference{R"(\p)", R"(\p{L})", true},
    Difference{R"(\P)", R"(\P{L})", true},
    Difference{R"(\x)", R"(\x{41})", true},
    Difference{R"(\U)", R"(\x{1F44D})", true},
    Difference{R"(\)", "it without this escape", true},
};

// True for a group such as (?i:'s|'ll). In others Oniguruma may equate two letters with one
// character, such as ss with U+00DF.
bool is_contraction(std::string_view rest) {
  constexpr std::string_view kBegin = "(?i:";
  if (!rest.starts_with(kBegin)) return false;
  const std::string_view body = rest.substr(kBegin.size(), rest.find(')') - kBegin.size());
  const auto has = [&](std::string_view text) { return body.find(text) != body.npos; };
  return body.find_first_not_of("'|[]abcdefghijklmnopqrstuvwxyz") == body.npos && !has("ss") &&
         !has("ff") && !has("fi") && !has("fl") && !has("st");
}

// The size of an escape, or of the beginning of a group, at the beginning of `rest` that both read
// alike. 0 if there is none.
std::size_t size_read_alike(std::string_view rest) {
  for (const std::string_view braced : {R"(\p{)", R"(\P{)", R"(\x{)"})
    if (rest.starts_with(braced)) return std::min(rest.find('}'), rest.size() - 1) + 1;
  for (const std::string_view group : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
    if (rest.starts_with(group)) return group.size();
  if (is_contraction(rest)) return 2;
  if (rest.size() < 2 || rest[0] != '\\') return 0;
  const bool is_alike = std::isalnum(static_cast<unsigned char>(rest[1])) == 0 ||
                        std::string_view("nrtfaevsSdDhzAu").find(rest[1]) != rest.npos;
  return is_alike ? 2 : 0;
}

// Throws InputError for the first part of `pattern` that tiktoken may read differently.
void check_is_read_alike(std::string_view pattern, std::string_view source) {
  const auto fail = [&](std::size_t at, std::size_t size, std::string_view instead) {
    throw InputError(concat(source, ": the split pattern '", pattern, "': at byte ", at, ": '",
                            pattern.substr(at, size),
                            "' may mean something else to tiktoken; write ", instead));
  };
  int depth = 0;               // of nested brackets
  std::vector<bool> is_loose;  // whether an open group has a part that may match nothing
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    const auto begins = [&](std::string_view text) { return rest.starts_with(text); };
    std::size_t size = size_read_alike(rest);
    if (depth == 0) {
      constexpr std::array<std::string_view, 9> kLoose = {"?",  "*",   "{,",  "{0", "|)",
                                                          "||", "(?=", "(?!", "\\z"};
      if (begins("(")) is_loose.push_back(false);
      if (std::any_of(kLoose.begin(), kLoose.end(), begins))
        std::fill(is_loose.begin(), is_loose.end(), true);
      if (begins(")") && !is_loose.empty()) {
        if (is_loose.back() && (begins(")*") || begins(")+") || begins("){")))
          fail(at, 2, "a group that cannot match nothing");
        is_loose.pop_back();
      }
    }
    if (size == 0) {
      size = rest.starts_with("[^") ? 2 : 1;
      const auto* const found =
          std::find_if(kDifferences.begin(), kDifferences.end(), [&](const Difference& each) {
            return (depth > 0 ? each.in_class : each.outside) && rest.starts_with(each.text);
          });
      if (found != kDifferences.end())
        fail(at, found->text.size() + (found->text == "\\" ? 1 : 0), found->instead);
    }
    if (begins("[")) ++depth;
    if (begins("]") && depth > 0) --depth;
    at += size;
  }
}

}  // namespace

Split read_split(std::string_view name_or_pattern, std::string_view source) {
  const Known* const known = find_known([&](const Known& each) {
    return each.tiktoken == name_or_pattern || (!each.name.empty() && each.name == name_or_pattern);
  });
  if (known != nullptr && known->matches_all)
    return {.pattern = std::string(oniguruma_of(*known)), .behavior = SplitBehavior::kIsolated};
  if (!is_utf8(name_or_pattern))
    throw InputError(concat(source, ": the split pattern '", name_or_pattern, "' is not UTF-8"));
  return {
      .pattern = std::string(name_or_pattern), .behavior = SplitBehavior::kRemoved, .invert = true};
}

Split read_split_of_ranks(std::string_view name_or_pattern, std::string_view source) {
  Split split = read_split(name_or_pattern, source);
  if (pcre2_pattern(split).empty()) check_is_read_alike(name_or_pattern, source);
  return split;
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
