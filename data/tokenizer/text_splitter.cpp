#include "data/tokenizer/text_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/utf8.h"
#include "data/tokenizer/library_entry.h"
#include "data/tokenizer/oniguruma_pattern.h"

namespace muo::data {
namespace {

// Unicode's White_Space, which is what other tokenizers mean by \s. PCRE2's \s also contains
// U+180E, which belonged to White_Space until Unicode 6.3.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Expands \s and \S in the expression, except for \S in a class, which keeps PCRE2's meaning.
std::string expand_space_classes(std::string_view pattern) {
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
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

}  // namespace

struct TextSplitter::Expression {
  Split split;
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> code;  // if PCRE2 is used, else
  std::unique_ptr<const OnigurumaPattern> oniguruma;
  bool has_jit = false;

  [[noreturn]] void give_up(std::string_view why) const {
    throw InputError(concat("the split pattern '", split.pattern, "' gives up on a text (", why,
                            "): it takes too many tries; give another one"));
  }
};

// The state of one thread's matching.
class TextSplitter::Matcher {
 public:
  explicit Matcher(const TextSplitter& splitter)
      : splitter_(splitter), context_(pcre2_match_context_create(nullptr)) {
    MUO_CHECK(context_, "no memory for matching");
    for (const auto& expression : splitter.expressions_)
      data_.emplace_back(expression->code
                             ? pcre2_match_data_create_from_pattern(expression->code.get(), nullptr)
                             : nullptr);
  }

  // Splits all of `text`, which is UTF-8, by the expressions from `level` on, and calls
  // `piece` for the pieces.
  void cut(std::size_t level, std::string_view text, const Piece& piece) {
    if (text.empty()) return;
    if (level == data_.size()) return piece(text);
    if (data_[level] == nullptr) return cut_by_oniguruma(level, text, piece);
    for (std::size_t at = 0; at < text.size();) {
      const auto [begin, end] = find(level, text, at);
      cut(level + 1, text.substr(at, begin - at), piece);
      cut(level + 1, text.substr(begin, end - begin), piece);
      at = end;
    }
  }

  // Returns the beginning and end of PCRE2's first match in `text`, which is UTF-8, at or after
  // `begin`; both are text.size() if there is none.
  std::pair<std::size_t, std::size_t> find(std::size_t level, std::string_view text,
                                           std::size_t begin) {
    const Expression& expression = *splitter_.expressions_[level];
    pcre2_match_data* const data = data_[level].get();
    const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto match = [&] {
      return expression.has_jit ? pcre2_jit_match(expression.code.get(), subject, text.size(),
                                                  begin, 0, data, context_.get())
                                : pcre2_match(expression.code.get(), subject, text.size(), begin,
                                              PCRE2_NO_UTF_CHECK, data, context_.get());
    };
    int found = match();
    // By default PCRE2's JIT uses 32 KiB of the thread's stack.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
      stack_.reset(pcre2_jit_stack_create(64 << 10, 64 << 20, nullptr));
      MUO_CHECK(stack_, "no memory for matching");
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      found = match();
    }
    if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (found < 0) expression.give_up(message_of(found));
    const std::size_t* const at = pcre2_get_ovector_pointer(data);
    MUO_CHECK(at[1] > at[0], "a known pattern matches nothing");
    return {at[0], at[1]};
  }

 private:
  void cut_by_oniguruma(std::size_t level, std::string_view text, const Piece& piece) {
    const Expression& expression = *splitter_.expressions_[level];
    const SplitBehavior behavior = expression.split.behavior;
    const bool invert = expression.split.invert;
    // The unfinished piece [begin, end), and whether its last part matches.
    std::size_t begin = 0, end = 0;
    bool matches = false;
    const auto finish = [&] {
      if (behavior != SplitBehavior::kRemoved || !matches)
        cut(level + 1, text.substr(begin, end - begin), piece);
      begin = end;
    };
    const auto add = [&](std::size_t to, bool is_match) {
      const bool joins = behavior == SplitBehavior::kContiguous           ? is_match == matches
                         : behavior == SplitBehavior::kMergedWithPrevious ? is_match && !matches
                         : behavior == SplitBehavior::kMergedWithNext     ? matches && !is_match
                                                                          : false;
      if (end > 0 && !joins) finish();
      end = to;
      matches = is_match;
    };
    const std::string error =
        expression.oniguruma->each_match(text, [&](std::size_t from, std::size_t to) {
          if (from > end) add(from, invert);
          add(to, !invert);
        });
    if (!error.empty()) expression.give_up(error);
    if (end < text.size()) add(text.size(), invert);
    finish();
  }

  const TextSplitter& splitter_;
  JitStack stack_;
  MatchContext context_;
  std::vector<MatchData> data_;
};

TextSplitter::TextSplitter(const std::vector<Split>& splits, std::string_view source) {
  MUO_CHECK(!splits.empty(), "a splitter without a pattern");
  for (const Split& split : splits) {
    auto expression = std::make_unique<Expression>();
    expression->split = split;
    if (const std::string_view known = pcre2_pattern(split); !known.empty()) {
      const std::string spelled = expand_space_classes(known);
      int error = 0;
      std::size_t where = 0;
      expression->code.reset(
          pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                        &error, &where, nullptr));
      MUO_CHECK(expression->code, known, ": ", message_of(error));
      expression->has_jit = pcre2_jit_compile(expression->code.get(), PCRE2_JIT_COMPLETE) == 0;
    } else {
      const std::string what = concat(source, ": the split pattern '", split.pattern, "'");
      const auto entry = reinterpret_cast<OnigurumaEntry>(
          library_entry("libmuograph_oniguruma.so", kOnigurumaEntry, "libonig5", what));
      std::string error;
      expression->oniguruma.reset(entry(split.pattern, &error));
      if (expression->oniguruma == nullptr)
        throw InputError(concat(what, " is not a regular expression to Oniguruma: ", error));
    }
    expressions_.push_back(std::move(expression));
  }
}

TextSplitter::~TextSplitter() = default;

bool TextSplitter::cuts_text() const { return expressions_.front()->code != nullptr; }

std::size_t TextSplitter::split(std::string_view text, std::size_t begin, std::size_t end,
                                const Piece& piece) const {
  // Bytes provided for look-ahead. An expression examines only a character or so beyond its match.
  constexpr std::size_t kAhead = 1 << 16;
  Matcher matcher(*this);
  std::size_t at = begin;
  std::size_t reach = kAhead;
  if (!cuts_text()) end = text.size();
  while (at < end) {
    // The text from `at` on, as far as it is examined.
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
    if (!cuts_text()) {
      matcher.cut(0, run, piece);
      at += valid;
      continue;
    }
    const std::size_t stop = std::min(end - at, run.size());
    const std::size_t sure = is_cut ? run.size() - std::min(run.size(), kAhead / 2) : run.size();
    std::size_t done = 0;
    while (done < stop) {
      const auto [from, to] = matcher.find(0, run, done);
      if (to > sure && is_cut) break;
      matcher.cut(1, run.substr(done, from - done), piece);
      matcher.cut(1, run.substr(from, to - from), piece);
      done = to;
    }
    if (done < stop) reach *= 2;  // a piece longer than the examined text
    at += done;
  }
  return at;
}

}  // namespace muo::data
