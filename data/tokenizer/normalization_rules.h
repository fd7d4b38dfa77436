#pragma once

#include <string_view>

namespace muo::data {

// SentencePiece's rules of normalization as a model holds them (precompiled_charsmap): the size of
// a double-array trie in bytes, the trie, whose keys are what is replaced and whose values are
// offsets of what replaces it, and these texts, each ended by a zero byte. libsentencepiece follows
// the trie wherever it leads; so this looks at all of it that a text can reach. Throws InputError,
// "SOURCE:
// ...", where that leads outside, in circles, or to more rules for one text than the library has
// room for.
void check_normalization_rules(std::string_view rules, std::string_view source);

}  // namespace muo::data
