#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// What becomes of matches, as Hugging Face's tokenizers have it: each is a piece; or is left out;
// or joins the text before it that does not match, or behind it; or neighbours that match are one
// piece, as are those that do not.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// How text is cut: by the matches of a regular expression.
struct Split {
  std::string pattern;  // as Oniguruma reads it; UTF-8
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches are what the pattern does not match
};

// By name (gpt2; gpt4; gpt4o; nanochat, which is GPT-4's with runs of at most two digits), or by
// an expression as tiktoken reads it. What is not matched is removed, as tiktoken does. Throws
// InputError, naming `source`, for an expression that translate_fancy_pattern() refuses.
Split read_split(std::string_view name_or_pattern, std::string_view source);

// The expression by which PCRE2, which is faster, cuts the same pieces, by isolating its matches.
// Empty if there is none.
std::string_view pcre2_pattern(const Split& split);

}  // namespace muo::data
