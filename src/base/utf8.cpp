#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace muo {
namespace {

struct Character {
  std::size_t bytes = 0;  // length of the well-formed character; 0: malformed
  bool whole = false;
};

Character first_character(std::string_view text) {
  const auto byte_at = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t lead = byte_at(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // Limits for the second byte only: they exclude overlong forms, surrogates and code points that
  // are too large.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t k = 1; k < size; ++k) {
    if (k == text.size()) return {k, false};
    const std::uint8_t next = byte_at(k);
    if (next < (k == 1 ? low : 0x80) || next > (k == 1 ? high : 0xBF)) return {};
  }
  return {size, true};
}

}  // namespace

std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0x80;
    if (text.size() - at >= sizeof eight) std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080U) == 0) {
      at += sizeof eight;
      continue;
    }
    const Character character = first_character(text.substr(at));
    if (!character.whole) break;
    at += character.bytes;
  }
  return at;
}

std::size_t utf8_cut_off(std::string_view text) {
  for (std::size_t size = 1; size <= std::min<std::size_t>(3, text.size()); ++size) {
    const std::string_view end = text.substr(text.size() - size);
    const Character character = first_character(end);
    if (!character.whole && character.bytes == size) return size;
  }
  return 0;
}

std::string_view other_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE"sv) || text.starts_with("\xFE\xFF"sv)) return "UTF-16";
  return {};
}

std::string conversion_advice(std::string_view encoding) {
  return concat("convert it to UTF-8: iconv -f ", encoding, " -t UTF-8");
}

}  // namespace muo
