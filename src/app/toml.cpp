#include "app/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/check.h"

namespace muo {
namespace {

bool is_bare(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '+' ||
         c == '.';
}

std::string utf8(std::uint32_t code) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0U | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  std::vector<TomlEntry> parse() {
    std::vector<TomlEntry> entries;
    for (skip(kAcrossLines); !at_end(); skip(kAcrossLines)) {
      TomlEntry entry;
      entry.line = line_;
      if (peek() == '[') fail("tables are not used here: write key = value");
      entry.key = peek() == '"' || peek() == '\'' ? string() : bare("a key");
      skip(kInLine);
      if (at_end() || peek() != '=') fail(fmt::format("'=' is missing after '{}'", entry.key));
      next();
      skip(kInLine);
      entry.values = value(entry.key);
      skip(kInLine);
      if (!at_end() && peek() != '\n') fail(fmt::format("more than a value for '{}'", entry.key));
      for (const TomlEntry& other : entries)
        if (other.key == entry.key)
          fail(fmt::format("'{}' stands in line {} already", entry.key, other.line));
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  static constexpr std::string_view kInLine = " \t\r";
  static constexpr std::string_view kAcrossLines = " \t\r\n";

  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(fmt::format("{}:{}: {}", name_, line_, why));
  }
  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] char peek() const { return text_[at_]; }
  char next() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  void skip(std::string_view blanks) {
    while (!at_end()) {
      if (peek() == '#') {
        while (!at_end() && peek() != '\n')
          next();
      } else if (blanks.find(peek()) != std::string_view::npos) {
        next();
      } else {
        return;
      }
    }
  }

  std::vector<std::string> value(const std::string& key) {
    if (at_end() || peek() != '[') return {scalar(key)};
    std::vector<std::string> values;
    next();
    for (;;) {
      skip(kAcrossLines);
      if (at_end()) fail(fmt::format("the array of '{}' does not end", key));
      if (peek() == ']') break;
      values.push_back(scalar(key));
      skip(kAcrossLines);
      if (!at_end() && peek() == ',') {
        next();
      } else if (at_end() || peek() != ']') {
        fail(fmt::format("',' or ']' is missing in the array of '{}'", key));
      }
    }
    next();
    return values;
  }

  std::string scalar(const std::string& key) {
    if (at_end() || peek() == '\n') fail(fmt::format("'{}' has no value", key));
    if (peek() == '"' || peek() == '\'') return string();
    std::string word = bare("a value");
    const bool number = std::isdigit(static_cast<unsigned char>(word.back())) != 0;
    if (number) std::erase(word, '_');
    if (!number && word != "true" && word != "false")
      fail(fmt::format("the value of '{}' needs quotes: \"{}\"", key, word));
    if (word.front() == '+') word.erase(0, 1);
    return word;
  }

  std::string bare(std::string_view what) {
    const std::size_t begin = at_;
    while (!at_end() && is_bare(peek()))
      next();
    if (at_ == begin) fail(fmt::format("{} is expected, not '{}'", what, peek()));
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string string() {
    const char quote = next();
    std::string out;
    for (;;) {
      if (at_end() || peek() == '\n') fail("a string does not end in its line");
      const char c = next();
      if (c == quote) return out;
      if (c == '\\' && quote == '"') {
        out += escape();
      } else {
        out += c;
      }
    }
  }

  std::string escape() {
    if (at_end()) fail("a string does not end in its line");
    const char c = next();
    switch (c) {
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case 'r':
        return "\r";
      case 'b':
        return "\b";
      case 'f':
        return "\f";
      case '"':
      case '\\':
        return {c};
      case 'u':
        return code_point(4);
      case 'U':
        return code_point(8);
      default:
        fail(fmt::format("'\\{}' is no escape sequence", c));
    }
  }

  std::string code_point(int digits) {
    std::uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      if (at_end() || std::isxdigit(static_cast<unsigned char>(peek())) == 0)
        fail(fmt::format("\\u and \\U take {} hexadecimal digits", digits));
      const char c = next();
      const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("no such character");
    return utf8(code);
  }

  std::string_view text_, name_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name) {
  return Parser(text, name).parse();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace muo
