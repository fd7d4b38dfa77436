#include "kit/report/train_record.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "trainer/options/option_table.h"

namespace muo::kit {
namespace {

// Scans a line and holds its unread rest.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool skip(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  [[nodiscard]] bool at_end() const { return text_.empty(); }
  [[nodiscard]] bool at_text() const { return text_.starts_with('"'); }

  // Reads an ASCII string without escapes, which needs no decoding.
  std::optional<std::string_view> text() {
    if (!skip("\"")) return std::nullopt;
    const auto is_plain = [](char c) { return c >= ' ' && c < '\x7F' && c != '"' && c != '\\'; };
    const auto end = std::ranges::find_if_not(text_, is_plain);
    const std::string_view out = text_.substr(0, static_cast<std::size_t>(end - text_.begin()));
    text_.remove_prefix(out.size());
    return skip("\"") ? std::optional(out) : std::nullopt;
  }

  std::optional<double> number() {
    for (const std::string_view word : {"null", "true", "false"})
      if (skip(word)) return std::numeric_limits<double>::quiet_NaN();
    double value = 0;
    const std::string_view token = take_number();
    return is_whole(token, value) ? std::optional(value) : std::nullopt;
  }

  std::optional<std::int64_t> whole_number() {
    std::int64_t value = 0;
    const std::string_view token = take_number();
    return is_whole(token, value) ? std::optional(value) : std::nullopt;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // Reads a token with the syntax of a JSON number, because from_chars accepts more forms.
  std::string_view take_number() {
    const auto is_part = [](char c) {
      return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
    };
    const auto end = std::ranges::find_if_not(text_, is_part);
    const std::string_view token = text_.substr(0, static_cast<std::size_t>(end - text_.begin()));
    const std::string_view digits = token.substr(token.starts_with('-') ? 1 : 0);
    if (digits.empty() || !is_digit(digits.front()) || !is_digit(digits.back()) ||
        (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])))
      return {};
    text_.remove_prefix(token.size());
    return token;
  }

  template <class Value>
  static bool is_whole(std::string_view token, Value& value) {
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    return !token.empty() && error == std::errc() && end == token.data() + token.size();
  }

  std::string_view text_;
};

bool take_value(Scanner& line, std::string_view key, TrainRecord& record) {
  if (line.at_text()) {
    const auto text = line.text();
    if (text && key == "skipped") record.skipped = *text;
    if (text && key == "bad_number") record.bad_number = *text;
    return text.has_value();
  }
  if (key == "step") {
    const auto step = line.whole_number();
    if (step) record.step = *step;
    return step.has_value();
  }
  const auto value = line.number();
  if (!value) return false;
  if (key == "tokens") record.tokens = *value;
  if (key == "gradient_scale") record.gradient_scale = *value;
  const auto series = std::ranges::find(kSeriesNames, key);
  if (series != kSeriesNames.end())
    record.series.at(static_cast<std::size_t>(series - kSeriesNames.begin())) = *value;
  return true;
}

}  // namespace

std::optional<TrainRecord> parse_train_record(std::string_view line) {
  Scanner rest(line);
  if (!rest.skip(R"({"kind":"train")")) return std::nullopt;
  TrainRecord record;
  while (rest.skip(",")) {
    const auto key = rest.text();
    if (!key || !rest.skip(":") || !take_value(rest, *key, record)) return std::nullopt;
  }
  const bool ends = rest.skip("}") && rest.at_end();
  const bool steps = record.step >= 0 && static_cast<double>(record.step) <= trainer::kMaxSteps;
  return ends && steps ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace muo::kit
