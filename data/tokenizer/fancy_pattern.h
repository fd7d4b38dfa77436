#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// Translates a regular expression of tiktoken (the Rust crate fancy-regex; character classes and
// properties are those of the crate regex) into an equivalent one for Oniguruma. Throws InputError,
// "SOURCE: the split pattern 'P': at byte N: ...", for a malformed pattern, for look-behind, for a
// pattern that can match the empty string, and for everything not known to have an equivalent:
// references to groups, named groups, conditions, flags other than i, m and s.
std::string translate_fancy_pattern(std::string_view pattern, std::string_view source);

}  // namespace muo::data
