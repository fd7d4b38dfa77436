#pragma once

#include <string_view>

namespace muo::data {

// Checks SentencePiece's normalization rules in a model (precompiled_charsmap): the size of a
// double-array trie in bytes; the trie, which maps the replaced texts to offsets of their
// replacements; and these replacements, each terminated by a zero byte. libsentencepiece follows
// the trie without checks, so this visits everything that a text can reach. Throws InputError,
// "SOURCE: ...", if that leads outside, in circles, or to more matching rules for one text than the
// library has room for.
void check_normalization_rules(std::string_view rules, std::string_view source);

}  // namespace muo::data
