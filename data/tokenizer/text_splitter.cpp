#include "data/tokenizer/text_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/utf8.h"

namespace muo {
namespace {

// Unicode's White_Space, which is what \s means to the tokenizers of others; PCRE2's \s also takes
// U+180E, which was one until Unicode 6.3.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// The expression with \s and \S spelled out, but for \S in a class, which stays PCRE2's.
std::string spell_out(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's')
        out += in_class ? std::string(kSpace) : concat('[', kSpace, ']');
      else if (next == 'S' && !in_class)
        out += concat("[^", kSpace, ']');
      else
        out += {c, next};
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  std::array<char, 256> text{};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  return text.data();
}

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

}  // namespace

struct TextSplitter::Expression {
  std::string pattern;
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
  bool has_jit = false;
};

// What a thread needs for matching.
class TextSplitter::Matcher {
 public:
  explicit Matcher(const TextSplitter& splitter)
      : splitter_(splitter), context_(pcre2_match_context_create(nullptr)) {
    MUO_CHECK(context_, "no memory for matching");
    for (const auto& expression : splitter.expressions_)
      data_.emplace_back(pcre2_match_data_create_from_pattern(expression->code.get(), nullptr));
  }

  // The first match at `begin` or behind it in `text`, which is UTF-8: its begin and end; both
  // text.size() if there is none.
  std::pair<std::size_t, std::size_t> find(std::size_t level, std::string_view text,
                                           std::size_t begin) {
    const Expression& expression = *splitter_.expressions_[level];
    pcre2_match_data* const data = data_[level].get();
    const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (std::size_t from = begin; from < text.size();) {
      const auto match = [&] {
        return expression.has_jit ? pcre2_jit_match(expression.code.get(), subject, text.size(),
                                                    from, 0, data, context_.get())
                                  : pcre2_match(expression.code.get(), subject, text.size(), from,
                                                PCRE2_NO_UTF_CHECK, data, context_.get());
      };
      int found = match();
      if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {  // 32 KiB of the thread's own first
        stack_.reset(pcre2_jit_stack_create(64 << 10, 64 << 20, nullptr));
        MUO_CHECK(stack_, "no memory for matching");
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
        found = match();
      }
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0)
        throw InputError(concat("the split pattern '", expression.pattern, "' gives up on a text (",
                                message_of(found), "): it takes too many tries; give another one"));
      const std::size_t* const at = pcre2_get_ovector_pointer(data);
      if (at[1] > at[0]) return {at[0], at[1]};
      for (from = at[1] + 1; from < text.size() && (text[from] & 0xC0) == 0x80;)
        ++from;  // a match of nothing cuts nothing
    }
    return {text.size(), text.size()};
  }

  [[nodiscard]] std::size_t levels() const { return data_.size(); }

 private:
  const TextSplitter& splitter_;
  JitStack stack_;
  MatchContext context_;
  std::vector<MatchData> data_;
};

TextSplitter::TextSplitter(const std::vector<std::string>& patterns, std::string_view source) {
  MUO_CHECK(!patterns.empty(), "a splitter without a pattern");
  for (const std::string& pattern : patterns) {
    auto expression = std::make_unique<Expression>();
    expression->pattern = pattern;
    const std::string spelled = spell_out(pattern);
    int error = 0;
    std::size_t where = 0;
    expression->code.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                      &error, &where, nullptr));
    if (!expression->code)
      throw InputError(concat(source, ": the split pattern '", pattern,
                              "' is not a regular expression: ", message_of(error)));
    std::uint32_t behind = 0;
    pcre2_pattern_info(expression->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &behind);
    if (behind > 0)
      throw InputError(concat(source, ": the split pattern '", pattern,
                              "' looks behind (lookbehind, \\b or ^), which is not supported"));
    expression->has_jit = pcre2_jit_compile(expression->code.get(), PCRE2_JIT_COMPLETE) == 0;
    expressions_.push_back(std::move(expression));
  }
}

TextSplitter::~TextSplitter() = default;

namespace {

// Pieces by the expressions from `level` on of all of `text`, which is UTF-8.
template <class Matcher>
void split_further(Matcher& matcher, std::size_t level, std::string_view text,
                   const TextSplitter::Piece& piece) {
  if (text.empty()) return;
  if (level == matcher.levels()) return piece(text);
  for (std::size_t at = 0; at < text.size();) {
    const auto [begin, end] = matcher.find(level, text, at);
    split_further(matcher, level + 1, text.substr(at, begin - at), piece);
    split_further(matcher, level + 1, text.substr(begin, end - begin), piece);
    at = end;
  }
}

}  // namespace

std::size_t TextSplitter::split(std::string_view text, std::size_t begin, std::size_t end,
                                const Piece& piece) const {
  // An expression looks beyond its match, by a character or so; this far it may.
  constexpr std::size_t kAhead = 1 << 16;
  Matcher matcher(*this);
  std::size_t at = begin;
  std::size_t reach = kAhead;
  while (at < end) {
    // UTF-8 from `at` on, whole or as far as it is looked at.
    const std::string_view seen = text.substr(at, end - at + reach);
    const std::size_t valid = utf8_prefix(seen);
    const bool is_cut = at + seen.size() < text.size() && seen.size() - valid < 4;
    if (valid == 0) {
      std::size_t wrong = at + 1;
      while (wrong < text.size() && utf8_prefix(text.substr(wrong, 4)) == 0)
        ++wrong;
      piece(text.substr(at, wrong - at));
      at = wrong;
      continue;
    }
    const std::string_view run = text.substr(at, valid);
    const std::size_t stop = std::min(end - at, run.size());
    const std::size_t sure = is_cut ? run.size() - std::min(run.size(), kAhead / 2) : run.size();
    std::size_t done = 0;
    while (done < stop) {
      const auto [from, to] = matcher.find(0, run, done);
      if (to > sure && is_cut) break;
      split_further(matcher, 1, run.substr(done, from - done), piece);
      split_further(matcher, 1, run.substr(from, to - from), piece);
      done = to;
    }
    if (done < stop) reach *= 2;  // a piece that is longer than what was looked at
    at += done;
  }
  return at;
}

}  // namespace muo
