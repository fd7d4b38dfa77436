#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// A regular expression as tiktoken reads it (the Rust crate fancy-regex: classes of characters and
// properties are those of the crate regex), written as one that Oniguruma reads in the same way.
// Throws InputError, "SOURCE: the split pattern 'P': at byte N: ...", for what is malformed, what
// looks behind, what matches no character at all, and whatever else is not known to mean the same:
// references to groups, named groups, conditions, flags but i, m and s.
std::string translate_fancy_pattern(std::string_view pattern, std::string_view source);

}  // namespace muo::data
