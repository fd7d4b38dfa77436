#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// The treatment of matches, as in Hugging Face's tokenizers: each match is a piece of its own; or
// is removed; or is joined to the unmatched text before it, or after it; or contiguous matches form
// one piece, as does the text between them.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Splits text by the matches of a regular expression.
struct Split {
  std::string pattern;  // in Oniguruma's syntax; UTF-8
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // swap matches and unmatched text
};

// Reads a split by name (gpt2; gpt4; gpt4o; nanochat, which is GPT-4's with runs of at most two
// digits), or from an expression in tiktoken's syntax. As in tiktoken, unmatched text is removed.
// Throws InputError, naming `source`, for an expression that translate_fancy_pattern() rejects.
Split read_split(std::string_view name_or_pattern, std::string_view source);

// The expression with which PCRE2, which is faster, produces the same pieces by isolating its
// matches. Empty if there is none.
std::string_view pcre2_pattern(const Split& split);

}  // namespace muo::data
