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

// Reads a split by name (gpt2; gpt4; gpt4o; llama3; nanochat, which is GPT-4's with runs of at most
// two digits), by one of these patterns as tiktoken spells it, or from another expression in
// Oniguruma's syntax, whose unmatched text is removed, as in tiktoken. Throws InputError, naming
// `source`, if it is not UTF-8.
Split read_split(std::string_view name_or_pattern, std::string_view source);

// The same for tiktoken's ranks. Also throws InputError for the first part of another expression
// that tiktoken (the Rust crates fancy-regex and regex) may read differently from Oniguruma; the
// message says what to write instead.
Split read_split_of_ranks(std::string_view name_or_pattern, std::string_view source);

// The expression with which PCRE2, which is faster, produces the same pieces by isolating its
// matches. Empty if there is none.
std::string_view pcre2_pattern(const Split& split);

}  // namespace muo::data
