#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace muo {
namespace {

using namespace std::string_view_literals;

// The UTF-8 encoding of a code point, by its size.
std::string encoded(std::uint32_t code) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  const auto tail = [&](int shift) { return byte(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0U | code >> 6), tail(0)};
  if (code < 0x10000) return {byte(0xE0U | code >> 12), tail(6), tail(0)};
  return {byte(0xF0U | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8, AcceptsEveryCharacterButNoSurrogate) {
  for (std::uint32_t code = 0; code < 0x120000; ++code)
    ASSERT_EQ(is_utf8("a" + encoded(code) + "b"),
              code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF))
        << code;
}

TEST(Utf8, RejectsPrefixesAndOverlongForms) {
  for (const std::string_view whole : {"\u00e9"sv, "\u20ac"sv, "\U0001F600"sv})
    for (std::size_t size = 1; size < whole.size(); ++size) {
      EXPECT_FALSE(is_utf8(whole.substr(0, size)));
      EXPECT_FALSE(is_utf8(std::string(whole.substr(0, size)) + "a"));
    }
  for (const std::string_view overlong :
       {"\xC0\x80"sv, "\xC1\xBF"sv, "\xE0\x9F\xBF"sv, "\xF0\x8F\xBF\xBF"sv, "\x80"sv, "\xFF"sv})
    EXPECT_FALSE(is_utf8(overlong));
}

TEST(Utf8, KnowsOtherEncodingsByTheirMarks) {
  EXPECT_EQ(other_encoding("\xFF\xFE\x2D\x4E"sv), "UTF-16");
  EXPECT_EQ(other_encoding("\xFE\xFF\x4E\x2D"sv), "UTF-16");
  EXPECT_EQ(other_encoding("\xFF\xFE\0\0a\0\0\0"sv), "UTF-32");
  EXPECT_EQ(other_encoding("\0\0\xFE\xFF\0\0\0a"sv), "UTF-32");
  for (const std::string_view text : {""sv, "\xFF"sv, "a"sv, "\xEF\xBB\xBF a"sv, "\xFE\xFE"sv})
    EXPECT_EQ(other_encoding(text), "") << text;
}

}  // namespace
}  // namespace muo
