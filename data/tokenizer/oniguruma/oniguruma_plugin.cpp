// libmuograph_oniguruma.so: Debian's libonig behind data/tokenizer/oniguruma_pattern.h.
#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/oniguruma_pattern.h"

namespace muo::data {
namespace {

const UChar* bytes_of(std::string_view text) { return reinterpret_cast<const UChar*>(text.data()); }

std::string message_of(int code, OnigErrorInfo* info) {
  std::array<UChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int size = onig_error_code_to_str(text.data(), code, info);
  std::string message(text.begin(), text.begin() + size);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

// Text to append to a class or property of Debian 12's Oniguruma (6.9.8, Unicode 14) to make it
// equal that of the tokenizers' version (6.9.10 and newer, Unicode 16), for characters that both
// know.
struct VersionFix {
  std::string_view names;
  std::string_view characters;
  bool is_posix = true, is_property = true;  // [:name:], \p{name}
};
constexpr std::array kVersionFixes = {
    VersionFix{" alnum alpha alphabetic ",
               R"(\x{363}-\x{36F}\x{C04}\x{F82}-\x{F83}\x{1DD3}-\x{1DE6}\x{11080}-\x{11081})"},
    VersionFix{" lower lowercase ", R"(\x{10FC}\x{A7F2}-\x{A7F4}\x{AB69})"},
    VersionFix{" punct ", R"(\p{S})", true, false},
    VersionFix{" word ", R"(\x{B2}-\x{B3}\x{B9}\x{BC}-\x{BE})", false, true},
    VersionFix{" mc spacingmark ", R"(\x{1171E})"},
    VersionFix{" mn nonspacingmark ", R"(&&[^\x{1171E}])"},
};
// Properties that differ too much between these versions to be fixed; they are refused.
constexpr std::string_view kChangedProperties =
    " cased caseignorable ci diacritic dia extender ext graphemebase grbase graphemeextend grext "
    "idcontinue idc otheralphabetic oalpha sentenceterminal sterm terminalpunctuation term "
    "xidcontinue xidc ";

// The name in the form of the lists: ' name '.
std::string list_entry(std::string_view name) {
  std::string out = " ";
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out + ' ';
}

std::string_view characters_to_add(const std::string& list_entry, bool is_property) {
  for (const VersionFix& each : kVersionFixes)
    if ((is_property ? each.is_property : each.is_posix) &&
        each.names.find(list_entry) != std::string_view::npos)
      return each.characters;
  return {};
}

// The pattern with its classes adapted to the newer version; or sets `error`.
std::string adapt_to_newer(std::string_view pattern, std::string& error) {
  std::string out;
  int depth = 0;  // of nested brackets
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    const bool is_property = rest.starts_with("\\p{") || rest.starts_with("\\P{");
    const bool is_posix = depth > 0 && rest.starts_with("[:");
    std::size_t size = rest.front() == '\\' ? std::min<std::size_t>(2, rest.size()) : 1;
    if (is_property || is_posix) {
      const std::size_t begin = is_property ? 3 : 2;
      const std::size_t end = std::min(rest.find(is_property ? "}" : ":]"), rest.size());
      std::string_view name = rest.substr(begin, std::max(end, begin) - begin);
      const bool has_caret = name.starts_with('^');
      if (has_caret) name.remove_prefix(1);
      const std::string names = list_entry(name);
      if (is_property && kChangedProperties.find(names) != std::string_view::npos)
        error.assign("the property '").append(name) += "' is not the same in all its versions";
      if (const std::string_view more = characters_to_add(names, is_property); !more.empty()) {
        out += (is_property && rest[1] == 'P') != has_caret ? "[^" : "[";
        out += is_property ? "\\p{" : "[:";
        out.append(name).append(is_property ? "}" : ":]").append(more) += ']';
        at += end + (is_property ? 1 : 2);
        continue;
      }
      if (is_posix && end < rest.size()) size = end + 2;
    } else if (rest.front() == '[') {
      ++depth;
      if (rest.starts_with("[^")) size = 2;
      if (rest.substr(size).starts_with(']')) ++size;  // ']' as a character
    } else if (rest.front() == ']' && depth > 0) {
      --depth;
    }
    out += rest.substr(0, size);
    at += size;
  }
  return out;
}

struct Deleter {
  void operator()(OnigRegex regex) const { onig_free(regex); }
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

class Plugin final : public OnigurumaPattern {
 public:
  std::string compile(std::string_view text) {
    std::string error;
    const std::string pattern = adapt_to_newer(text, error);
    if (!error.empty()) return error;
    static const int is_initialised = [] {
      OnigEncoding utf8 = ONIG_ENCODING_UTF8;
      return onig_initialize(&utf8, 1);
    }();
    OnigErrorInfo info{};
    OnigRegex regex = nullptr;
    int code = is_initialised;
    if (code == ONIG_NORMAL)
      code = onig_new(&regex, bytes_of(pattern), bytes_of(pattern) + pattern.size(),
                      ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    if (code != ONIG_NORMAL) return message_of(code, &info);
    regex_.reset(regex);
    return {};
  }

  // Like find_iter() of the Rust crate onig, which tokenizers call: an empty match counts, except
  // directly after the previous match.
  std::string each_match(
      std::string_view text,
      const std::function<void(std::size_t begin, std::size_t end)>& match) const override {
    if (text.size() > std::numeric_limits<int>::max()) return "it is longer than 2 GiB";
    const std::unique_ptr<OnigRegion, Deleter> region(onig_region_new());
    if (region == nullptr) return "no memory";
    const UChar* const all = bytes_of(text);
    constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::size_t last = kNone;  // the end of the previous match
    for (std::size_t from = 0; from <= text.size();) {
      const int found = onig_search(regex_.get(), all, all + text.size(), all + from,
                                    all + text.size(), region.get(), ONIG_OPTION_NONE);
      if (found == ONIG_MISMATCH) break;
      if (found < 0) return message_of(found, nullptr);
      const auto begin = static_cast<std::size_t>(region->beg[0]);
      const auto end = static_cast<std::size_t>(region->end[0]);
      from = end;
      if (begin == end) do {
          ++from;
        } while (from < text.size() && (text[from] & 0xC0) == 0x80);
      if (begin == end && begin == last) continue;
      last = end;
      match(begin, end);
    }
    return {};
  }

 private:
  std::unique_ptr<OnigRegexType, Deleter> regex_;
};

}  // namespace
}  // namespace muo::data

extern "C" muo::data::OnigurumaPattern* muograph_open_oniguruma(std::string_view pattern,
                                                                std::string* error) {
  auto plugin = std::make_unique<muo::data::Plugin>();
  *error = plugin->compile(pattern);
  return error->empty() ? plugin.release() : nullptr;
}
