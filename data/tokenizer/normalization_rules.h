#pragma once

#include <string_view>

namespace muo::data {

// Checks the normalization rules in a SentencePiece model (precompiled_charsmap). They consist of
// the size of a double-array trie in bytes; the trie, which maps the replaced texts to offsets of
// their replacements; and these replacements, each terminated by a zero byte. libsentencepiece
// follows the trie without checks, so this function visits everything that a text can reach. Throws
// InputError, "SOURCE: ...", if a path leads outside of the trie or in a cycle, or if more rules
// match one text than the library has room for.
void check_normalization_rules(std::string_view rules, std::string_view source);

}  // namespace muo::data
