#include "data/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace muo::data {
namespace {

// Characters newer than Unicode 9, up to the draft of Unicode 18, that combine or are composed,
// merged into ranges with characters that never do so; and U+11A7, which utf8proc 2.8 mistakes for
// the end of a Hangul syllable and drops.
struct Range {
  utf8proc_int32_t first, last;
};
constexpr std::array kNewer = {
    Range{0x5C8, 0x5C9},     Range{0x7FD, 0x7FD},     Range{0x897, 0x8D3},
    Range{0x9FE, 0x9FE},     Range{0xC3C, 0xC3C},     Range{0xD3B, 0xD3C},
    Range{0xEBA, 0xEBA},     Range{0x11A7, 0x11A7},   Range{0x1715, 0x1715},
    Range{0x1ABF, 0x1AF0},   Range{0x1DF6, 0x1DFA},   Range{0xA82C, 0xA82C},
    Range{0x105C9, 0x105E4}, Range{0x10D24, 0x10F85}, Range{0x11070, 0x11070},
    Range{0x1133B, 0x1133B}, Range{0x11382, 0x11391}, Range{0x113C2, 0x113C8},
    Range{0x113CE, 0x113D0}, Range{0x1145E, 0x1145E}, Range{0x11839, 0x1183A},
    Range{0x11935, 0x11A99}, Range{0x11D42, 0x1611E}, Range{0x16121, 0x1612F},
    Range{0x16D63, 0x16FF1}, Range{0x1D127, 0x1D128}, Range{0x1D250, 0x1D281},
    Range{0x1E08F, 0x1E6F5}};

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

bool is_newer(utf8proc_int32_t character) {
  const auto* const range = std::ranges::upper_bound(kNewer, character, {}, &Range::first);
  return range != kNewer.begin() && character <= std::prev(range)->last;
}

// Appends the normal form of `text`, which is UTF-8. utf8proc_map() is not used because it sorts a
// run of marks by exchanging neighbours, which takes quadratic time.
void append_nfc(std::string_view text, std::string& out) {
  constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> characters;
  for (std::size_t at = 0; at < text.size();) {
    constexpr std::size_t kMax = 4;  // longest decomposition of a character
    utf8proc_int32_t character = 0;
    at += static_cast<std::size_t>(utf8proc_iterate(bytes_of(text) + at, -1, &character));
    const std::size_t size = characters.size();
    characters.resize(size + kMax);
    const utf8proc_ssize_t more =
        utf8proc_decompose_char(character, &characters[size], kMax, kDecompose, nullptr);
    MUO_CHECK(more > 0 && more <= utf8proc_ssize_t{kMax}, "utf8proc cannot decompose U+", character,
              ": ", more);
    characters.resize(size + static_cast<std::size_t>(more));
  }
  const auto order = [](utf8proc_int32_t character) {
    return utf8proc_get_property(character)->combining_class;
  };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), order);
    const auto end = std::find_if_not(begin, characters.end(), order);
    std::ranges::stable_sort(begin, end, {}, order);
    begin = end;
  }
  const auto size = static_cast<utf8proc_ssize_t>(characters.size());
  characters.push_back(0);  // room for a terminator
  const utf8proc_ssize_t bytes = utf8proc_reencode(characters.data(), size, kCompose);
  MUO_CHECK(bytes >= 0, utf8proc_errmsg(bytes));
  out.append(reinterpret_cast<const char*>(characters.data()), static_cast<std::size_t>(bytes));
}

}  // namespace

std::string to_nfc(std::string_view text) {
  constexpr utf8proc_int32_t kCombining = 0x300;  // characters below neither change nor combine
  std::string out;
  out.reserve(text.size());
  // text[begin, at) is pending, and its last character starts at `last`. It will be normalized if
  // `changes`, else copied.
  std::size_t begin = 0, last = 0;
  bool changes = false;
  const auto finish = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (changes)
      append_nfc(part, out);
    else
      out += part;
    begin = end;
    changes = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t character = static_cast<unsigned char>(text[at]);
    std::size_t size = 1;
    if (character >= 0x80) {
      const utf8proc_ssize_t read = utf8proc_iterate(
          bytes_of(text) + at, static_cast<utf8proc_ssize_t>(text.size() - at), &character);
      size = static_cast<std::size_t>(std::max<utf8proc_ssize_t>(read, 1));
    }
    if (character < 0 || is_newer(character)) {  // not UTF-8: -1
      finish(at);
      out += text.substr(at, size);
      begin = last = at + size;
    } else if (character < kCombining) {
      if (changes) finish(at);
      last = at;
    } else if (!changes) {
      finish(last);
      changes = true;
    }
    at += size;
  }
  finish(text.size());
  return out;
}

}  // namespace muo::data
