#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace muo {

// UTF-8 is RFC 3629's: without overlong forms, surrogates or code points beyond U+10FFFF.

// Bytes at the start of `text` that are whole, well-formed characters.
std::size_t utf8_prefix(std::string_view text);

// Whether all of `text` is well-formed.
inline bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

// Bytes at the end of `text` that begin a well-formed character and lack the rest of it: 0 to 3.
std::size_t utf8_cut_off(std::string_view text);

// "UTF-16" or "UTF-32" where `text` begins with the mark of its byte order, else empty; and the
// advice for such text.
std::string_view other_encoding(std::string_view text);
std::string conversion_advice(std::string_view encoding);

// Whether a byte is of a character that an earlier one begins.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80; }
// Characters of well-formed text.
inline std::ptrdiff_t utf8_letters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return !continues_utf8(byte); });
}

}  // namespace muo
