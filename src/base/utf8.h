#pragma once

#include <cstddef>
#include <string_view>

namespace muo {

// UTF-8 is RFC 3629's: without overlong forms, surrogates or code points beyond U+10FFFF.

// Bytes at the start of `text` that are whole, well-formed characters.
std::size_t utf8_prefix(std::string_view text);

// Whether all of `text` is well-formed.
inline bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

// Bytes at the end of `text` that begin a well-formed character and lack the rest of it: 0 to 3.
std::size_t utf8_cut_off(std::string_view text);

}  // namespace muo
