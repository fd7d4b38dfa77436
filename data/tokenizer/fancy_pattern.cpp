#include "data/tokenizer/fancy_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace muo::data {
namespace {

constexpr int kMaxDepth = 100;  // of nested groups and classes
constexpr std::uint32_t kMaxTimes = 1000;
constexpr std::uint32_t kEndless = ~std::uint32_t{0};

// Properties with the same meaning on both sides: Oniguruma's name, and after = another one.
// Scripts are values of Script, not of Script_Extensions, and are limited to those that Unicode
// recommends.
constexpr std::string_view kProperties =
    "L=letter Lu=uppercaseletter Ll=lowercaseletter Lt=titlecaseletter Lm=modifierletter "
    "Lo=otherletter M=mark Mn=nonspacingmark Mc=spacingmark Me=enclosingmark N=number "
    "Nd=decimalnumber Nl=letternumber No=othernumber P=punctuation Pc=connectorpunctuation "
    "Pd=dashpunctuation Ps=openpunctuation Pe=closepunctuation Pi=initialpunctuation "
    "Pf=finalpunctuation Po=otherpunctuation S=symbol Sm=mathsymbol Sc=currencysymbol "
    "Sk=modifiersymbol So=othersymbol Z=separator Zs=spaceseparator Zl=lineseparator "
    "Zp=paragraphseparator C=other Cc=control Cf=format Co=privateuse Alphabetic=alpha "
    "Lowercase=lower Uppercase=upper White_Space=space Arabic Armenian Bengali Bopomofo Cyrillic "
    "Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Kannada "
    "Katakana Khmer Lao Latin Malayalam Myanmar Oriya Sinhala Tamil Telugu Thaana Thai Tibetan ";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

// The ASCII characters of [:name:], as ranges: pairs of first and last character.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kPosix = {{
    {"alnum", "09AZaz"},
    {"alpha", "AZaz"},
    {"ascii", std::string_view("\0\x7F", 2)},
    {"blank", "\t\t  "},
    {"cntrl", std::string_view("\0\x1F\x7F\x7F", 4)},
    {"digit", "09"},
    {"graph", "!~"},
    {"lower", "az"},
    {"print", " ~"},
    {"punct", "!/:@[`{~"},
    {"space", "\t\r  "},
    {"upper", "AZ"},
    {"word", "09AZaz__"},
    {"xdigit", "09AFaf"},
}};

struct Flags {
  bool ignores_case = false, dot_is_any = false, has_lines = false;
};

// A translated part of the pattern.
struct Part {
  std::string text;
  bool can_be_empty = false;   // can match the empty string
  bool is_zero_width = false;  // is empty or only looks ahead, so it cannot be repeated
};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view source)
      : pattern_(pattern), source_(source) {}

  std::string translate() {
    if (!is_utf8(pattern_)) fail(0, "it is not UTF-8");
    Part all = alternatives({}, 0);
    if (!at_end()) fail(at_, "')' closes no group");
    if (all.can_be_empty) fail(0, "it can match the empty string; write + for *, or leave out ?");
    return std::move(all.text);
  }

 private:
  template <class... What>
  [[noreturn]] void fail(std::size_t at, const What&... what) const {
    throw InputError(
        concat(source_, ": the split pattern '", pattern_, "': at byte ", at, ": ", what...));
  }
  [[nodiscard]] bool at_end() const { return at_ == pattern_.size(); }
  [[nodiscard]] bool next_is(std::string_view text) const {
    return pattern_.substr(at_).starts_with(text);
  }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  void expect(std::string_view text, std::string_view what) {
    if (!take(text)) fail(at_, "no '", text, "' ends ", what);
  }
  void check_depth(int depth) const {
    if (depth > kMaxDepth) fail(at_, "more than ", kMaxDepth, " groups and classes, nested");
  }

  // Returns the character at at_ and advances past it.
  char32_t take_character() {
    std::size_t size = 1;
    while (at_ + size < pattern_.size() && (pattern_[at_ + size] & 0xC0) == 0x80)
      ++size;
    const auto lead = static_cast<unsigned char>(pattern_[at_]);
    char32_t code = size == 1 ? lead : lead & (0x7FU >> size);
    for (std::size_t i = 1; i < size; ++i)
      code = code << 6 | (static_cast<unsigned char>(pattern_[at_ + i]) & 0x3FU);
    at_ += size;
    return code;
  }

  // The character, quoted for Oniguruma, in a class or outside.
  static std::string quoted(char32_t code) {
    for (const auto& [letter, control] : {std::pair{'n', U'\n'}, {'r', U'\r'}, {'t', U'\t'}})
      if (code == control) return {'\\', letter};
    if (code < U' ' || code >= 0x7F)
      return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(code));
    const char c = static_cast<char>(code);
    if (std::string_view(R"(\.[]{}()*+?|^$-&:)").find(c) != std::string_view::npos)
      return {'\\', c};
    return {c};
  }

  // The items of a class for the characters from `first` to `last`.
  [[nodiscard]] std::string range(char32_t first, char32_t last, const Flags& flags,
                                  std::size_t where) const {
    std::string out = quoted(first);
    if (last > first) out += '-' + quoted(last);
    if (!flags.ignores_case) return out;
    if (last >= 0x80)
      fail(where, "(?i) is supported for ASCII only, and this is U+",
           fmt::format("{:04X}", static_cast<std::uint32_t>(last)));
    for (char32_t code = first; code <= last; ++code) {
      if (std::isalpha(static_cast<int>(code)) == 0) continue;
      out += static_cast<char>(code ^ 0x20U);
      if ((code | 0x20U) == U's') out += "\\x{17F}";   // long s
      if ((code | 0x20U) == U'k') out += "\\x{212A}";  // Kelvin
    }
    return out;
  }

  Part alternatives(Flags flags, int depth) {
    check_depth(depth);
    Part out;
    out.is_zero_width = true;
    for (bool is_first = true; is_first || take("|"); is_first = false) {
      if (!is_first) out.text += '|';
      Part branch = sequence(flags, depth);
      out.text += branch.text;
      // Oniguruma does not repeat alternatives of which one is a lone look-ahead or \z.
      if (branch.is_zero_width && !branch.text.empty()) out.text += "(?:)";
      out.can_be_empty |= branch.can_be_empty;
      out.is_zero_width &= branch.is_zero_width;
    }
    return out;
  }

  // Translates up to | or ) or the end; `flags` are updated to those of the rest of the group.
  Part sequence(Flags& flags, int depth) {
    Part out{.text = {}, .can_be_empty = true, .is_zero_width = true};
    while (!at_end() && !next_is("|") && !next_is(")")) {
      const std::size_t where = at_;
      std::optional<Part> part = atom(flags, depth);
      if (!part) continue;  // it only set flags
      Part repeated = repeat(std::move(*part), where);
      out.text += repeated.text;
      out.can_be_empty &= repeated.can_be_empty;
      out.is_zero_width &= repeated.is_zero_width;
    }
    return out;
  }

  Part repeat(Part part, std::size_t where) {
    std::uint32_t least = 0, most = kEndless;
    std::string times;
    if (take("?")) {
      times = '?';
      most = 1;
    } else if (take("*")) {
      times = '*';
    } else if (take("+")) {
      times = '+';
      least = 1;
    } else if (next_is("{")) {
      std::tie(least, most) = counts();
      times = least == most      ? fmt::format("{{{}}}", least)
              : most == kEndless ? fmt::format("{{{},}}", least)
                                 : fmt::format("{{{},{}}}", least, most);
    } else {
      return part;
    }
    if (part.is_zero_width) fail(where, "a zero-width expression is repeated");
    if (part.can_be_empty && most > 1)
      fail(where, "an expression that may match the empty string is repeated");
    // Oniguruma would read {n}? as optional.
    if (take("?") && least < most) times += '?';
    part.text += times;
    // Oniguruma lacks a possessive form of some quantifiers.
    if (take("+")) part.text = "(?>" + part.text + ')';
    part.can_be_empty |= least == 0;
    if (next_is("?") || next_is("*") || next_is("+"))
      fail(at_, "a quantifier after a quantifier; put a group in between");
    return part;
  }

  // Parses {n}, {n,}, {n,m} or {,m}, which is {0,m}, and returns the least and the most.
  std::pair<std::uint32_t, std::uint32_t> counts() {
    const std::size_t where = at_++;
    const std::string_view body = pattern_.substr(at_, pattern_.find('}', at_) - at_);
    at_ += body.size();
    const std::size_t comma = body.find(',');
    const std::string_view first = body.substr(0, comma);
    const std::string_view last = comma == std::string_view::npos ? first : body.substr(comma + 1);
    const auto number = [&](std::string_view text) {
      std::uint32_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (!text.empty() && (error != std::errc() || end != text.data() + text.size()))
        value = kMaxTimes + 1;
      return value;
    };
    const std::uint32_t least = number(first), most = last.empty() ? kEndless : number(last);
    if (!take("}") || body.empty() || body == "," || most == 0 || most < least ||
        (most > kMaxTimes && most != kEndless))
      fail(where, "'{' begins no count such as {1,3}, of at most ", kMaxTimes,
           "; as a character it is \\{");
    return {least, most};
  }

  // Empty where flags are set for the rest of the group.
  std::optional<Part> atom(Flags& flags, int depth) {
    const std::size_t where = at_;
    if (take("(")) return group(flags, depth, where);
    if (next_is("[")) return Part{character_class(flags, depth)};
    if (take(".")) return Part{flags.dot_is_any ? R"(\p{Any})" : R"([^\n])"};
    if (take("$"))
      return Part{.text = flags.has_lines ? R"((?=\n|\z))" : R"(\z)",
                  .can_be_empty = true,
                  .is_zero_width = true};
    if (next_is("^")) fail(at_, "'^' looks behind, which is not supported");
    for (const std::string_view sign : {"?", "*", "+", "{"})
      if (next_is(sign)) fail(at_, "'", sign, "' repeats nothing");
    if (take("\\")) {
      if (take("z")) return Part{.text = R"(\z)", .can_be_empty = true, .is_zero_width = true};
      if (const auto set = class_of_escape(flags, where)) return Part{'[' + *set + ']'};
      return literal(escaped_character(where), flags, where);
    }
    return literal(take_character(), flags, where);
  }

  [[nodiscard]] Part literal(char32_t code, const Flags& flags, std::size_t where) const {
    const std::string text = range(code, code, flags, where);
    const std::string alone = quoted(code);
    return Part{text == alone ? alone : '[' + text + ']'};
  }

  // Called after the group's '(', which is at `where`.
  std::optional<Part> group(Flags& flags, int depth, std::size_t where) {
    Flags inner = flags;
    std::string opened = "(?:";
    const auto has_kind = [&](std::string_view kind) {
      if (!take(kind)) return false;
      opened = concat('(', kind);
      return true;
    };
    bool looks = false;
    if (has_kind("?=") || has_kind("?!")) {
      looks = true;
    } else if (!has_kind("?:") && !has_kind("?>") && take("?")) {
      if (next_is("<=") || next_is("<!")) fail(where, "look-behind is not supported");
      bool value = true;
      for (; !at_end() && !next_is(":") && !next_is(")"); ++at_) {
        bool* const flag = next_is("i")   ? &inner.ignores_case
                           : next_is("s") ? &inner.dot_is_any
                           : next_is("m") ? &inner.has_lines
                                          : nullptr;
        if (flag != nullptr)
          *flag = value;
        else if (next_is("-") && value)
          value = false;
        else
          fail(where,
               "groups are (...), (?:...), (?>...), (?=...), (?!...) and those of the flags "
               "i, m and s; others are not supported");
      }
      if (take(")")) {
        flags = inner;
        return std::nullopt;
      }
      expect(":", "the flags");
    }
    Part inside = alternatives(inner, depth + 1);
    expect(")", "the group");
    inside.text = opened + inside.text + ')';
    if (looks) inside.can_be_empty = inside.is_zero_width = true;
    return inside;
  }

  // Called after a backslash at `where`: the items of a class, if the escape stands for a class.
  std::optional<std::string> class_of_escape(const Flags& flags, std::size_t where) {
    for (const std::string_view same : {"s", "S", "d", "D"})
      if (take(same)) return concat('\\', same);
    if (take("w")) return std::string(kWord);
    if (take("W")) return concat("[^", kWord, ']');
    if (take("h")) return "0-9A-Fa-f";
    if (next_is("p") || next_is("P")) {
      if (flags.ignores_case) fail(where, "a property under (?i) is not supported");
      return property(where);
    }
    return std::nullopt;
  }

  std::string property(std::size_t where) {
    const bool is_not = pattern_[at_++] == 'P';
    std::string_view name;
    if (take("{")) {
      const std::size_t end = std::min(pattern_.find('}', at_), pattern_.size());
      name = pattern_.substr(at_, end - at_);
      at_ = end;
      expect("}", "the property");
    } else if (!at_end()) {
      name = pattern_.substr(at_++, 1);
    }
    const auto plain = [](std::string_view text) {
      std::string out;
      for (const char c : text)
        if (c != '_' && c != ' ' && c != '-')
          out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      return out;
    };
    for (std::string_view rest = kProperties; !rest.empty();) {
      const std::string_view entry = rest.substr(0, rest.find(' '));
      rest.remove_prefix(entry.size() + 1);
      const std::size_t equals = std::min(entry.find('='), entry.size());
      const std::string_view ours = entry.substr(0, equals);
      if (plain(name) == plain(ours) ||
          (equals < entry.size() && plain(name) == entry.substr(equals + 1)))
        return concat(is_not ? "\\P{" : "\\p{", ours, '}');
    }
    fail(where, "the property '", name,
         "' is not supported: categories, the scripts in general use, "
         "Alphabetic, Lowercase, Uppercase and White_Space are");
  }

  // Called after a backslash at `where`.
  char32_t escaped_character(std::size_t where) {
    if (at_end()) fail(where, "a backslash ends it");
    constexpr std::array<std::pair<char, char32_t>, 7> kControls = {{{'a', 0x07},
                                                                     {'e', 0x1B},
                                                                     {'f', 0x0C},
                                                                     {'n', 0x0A},
                                                                     {'r', 0x0D},
                                                                     {'t', 0x09},
                                                                     {'v', 0x0B}}};
    for (const auto& [letter, code] : kControls)
      if (take({&letter, 1})) return code;
    for (const auto& [letter, digits] : {std::pair{'x', 2U}, {'u', 4U}, {'U', 8U}})
      if (take({&letter, 1})) return hexadecimal(digits, where);
    const auto byte = static_cast<unsigned char>(pattern_[at_]);
    if (byte >= 0x80 || std::isalnum(byte) != 0)
      fail(where, "'\\", pattern_.substr(at_, 1),
           "' is not supported, like look-behind, references and similar escapes");
    return take_character();
  }

  char32_t hexadecimal(std::size_t digits, std::size_t where) {
    const bool is_braced = take("{");
    const std::size_t begin = at_;
    char32_t code = 0;
    while (!at_end() && std::isxdigit(static_cast<unsigned char>(pattern_[at_])) != 0 &&
           at_ - begin < (is_braced ? 8 : digits)) {
      const char c = pattern_[at_++];
      code = code << 4 | static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    const bool is_whole = is_braced ? at_ > begin && take("}") : at_ - begin == digits;
    if (!is_whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail(where, "not the hexadecimal number of a character");
    return code;
  }

  // Translates [...] of the crate regex: operands of && and --, evaluated from the left, each a
  // union of items.
  std::string character_class(const Flags& flags, int depth) {
    check_depth(depth);
    const std::size_t where = at_++;
    const bool is_not = take("^");
    std::string set = items(flags, depth, where);
    for (;;) {
      if (take("]")) break;
      const std::string_view sign = pattern_.substr(at_, 2);
      // Oniguruma gives wrong results for ~~'s equivalent if both operands are all characters.
      if (sign == "~~") fail(at_, "the operator ~~ of classes is not supported");
      at_ += 2;
      const std::string other = items(flags, depth, where);
      set = concat('[', set, sign == "&&" ? "]&&[" : "]&&[^", other, ']');
    }
    return concat(is_not ? "[^" : "[", set, ']');
  }

  // Translates items up to ] or an operator.
  std::string items(const Flags& flags, int depth, std::size_t where) {
    std::string out;
    while (!next_is("]") && !next_is("&&") && !next_is("--") && !next_is("~~")) {
      const std::size_t here = at_;
      if (at_end()) fail(where, "no ']' ends the class");
      if (next_is("-") && !out.empty() && !next_is("-]"))
        fail(here, "'-' as a character of a class is \\-");
      if (next_is("[:")) {
        out += posix(flags);
      } else if (next_is("[")) {
        out += character_class(flags, depth + 1);
      } else if (take("\\")) {
        const auto set = class_of_escape(flags, here);
        out += set ? *set : range(escaped_character(here), flags, here);
      } else {
        out += range(take_character(), flags, here);
      }
    }
    if (out.empty())
      fail(at_,
           "a class, or an operand of one, without characters; ']' and '-' as such are \\] "
           "and \\-");
    return out;
  }

  // The item `first`, or the range from it to the character after a '-'.
  std::string range(char32_t first, const Flags& flags, std::size_t where) {
    if (first == U'-' || !next_is("-") || next_is("-]") || next_is("--"))
      return range(first, first, flags, where);
    ++at_;
    if (at_end() || next_is("[")) fail(where, "a range without an end");
    const char32_t last = take("\\") ? escaped_character(where) : take_character();
    if (last < first) fail(where, "a descending range");
    return range(first, last, flags, where);
  }

  std::string posix(const Flags& flags) {
    const std::size_t where = at_;
    at_ += 2;
    const bool is_not = take("^");
    const std::size_t end = std::min(pattern_.find(":]", at_), pattern_.size());
    const std::string_view name = pattern_.substr(at_, end - at_);
    const auto* const found = std::find_if(kPosix.begin(), kPosix.end(),
                                           [&](const auto& pair) { return pair.first == name; });
    if (found == kPosix.end()) fail(where, "'[:", name, ":]' is not a POSIX class");
    at_ = end;
    expect(":]", "the class");
    std::string out;
    for (std::size_t i = 0; i < found->second.size(); i += 2)
      out += range(static_cast<unsigned char>(found->second[i]),
                   static_cast<unsigned char>(found->second[i + 1]), flags, where);
    return is_not ? concat("[^", out, ']') : out;
  }

  std::string_view pattern_, source_;
  std::size_t at_ = 0;
};

}  // namespace

std::string translate_fancy_pattern(std::string_view pattern, std::string_view source) {
  return Translator(pattern, source).translate();
}

}  // namespace muo::data
