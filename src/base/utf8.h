#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace muo {

// UTF-8 as defined by RFC 3629: no overlong forms, surrogates or code points beyond U+10FFFF.

// The length in bytes of the longest prefix of `text` that consists of well-formed characters.
std::size_t utf8_prefix(std::string_view text);

// True if all of `text` is well-formed.
inline bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

// The length in bytes, 0 to 3, of a character at the end of `text` that is incomplete but so far
// well-formed.
std::size_t utf8_cut_off(std::string_view text);

// other_encoding(): "UTF-16" or "UTF-32" if `text` begins with that byte order mark, otherwise
// empty. conversion_advice(): how to convert text in that encoding.
std::string_view other_encoding(std::string_view text);
std::string conversion_advice(std::string_view encoding);

// True if the byte continues a character rather than beginning one.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80; }
// The number of characters of well-formed text.
inline std::ptrdiff_t utf8_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return !continues_utf8(byte); });
}

}  // namespace muo
