#include "trainer/options/option_row.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/split.h"
#include "base/utf8.h"

namespace muo::trainer {
namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view text, std::string_view why) {
  throw input_error("{}: '{}' {}", where, text, why);
}

// Parses "0.5", "1e3", or a number with a decimal unit: "12M".
std::optional<double> parse_decimal(std::string_view text) {
  constexpr std::string_view kUnits = "kMGT";
  double unit = 1;
  if (text.empty()) return std::nullopt;
  if (const std::size_t power = kUnits.find(text.back()); power != std::string_view::npos) {
    unit = std::pow(1000, static_cast<double>(power) + 1);
    text.remove_suffix(1);
  }
  const std::optional<double> value = real_number(text);
  return value ? std::optional(*value * unit) : std::nullopt;
}

template <class Number>
Number parse_number(std::string_view where, std::string_view text, std::string_view kind) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) refuse(where, text, "is too large");
  if (error == std::errc() && stop == end && !text.empty()) return value;
  const std::optional<double> decimal = parse_decimal(text);
  if (!decimal) refuse(where, text, fmt::format("is not {}", kind));
  if constexpr (std::is_integral_v<Number>) {
    constexpr double kMaxExact = 1LL << 53;
    if (std::abs(*decimal) > kMaxExact) refuse(where, text, "is too large");
    if (*decimal != std::floor(*decimal) || (*decimal < 0 && std::is_unsigned_v<Number>))
      refuse(where, text, fmt::format("is not {}", kind));
  }
  return static_cast<Number>(*decimal);
}

std::string number_text(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

std::string range_text(const OptionRange& range) {
  const std::string least = number_text(range.low);
  const std::string text = range.high == std::numeric_limits<double>::max()
                               ? fmt::format("at least {}", least)
                               : fmt::format("from {} to {}", least, number_text(range.high));
  return range.or_never ? text + ", or -1 (never)" : text;
}

template <class Number>
Number parse_ranged(const OptionRow& row, std::string_view where, std::string_view text,
                    std::string_view kind) {
  const auto value = parse_number<Number>(where, text, kind);
  check_range(row.range, static_cast<double>(value), where, text);
  return value;
}

bool parse_switch(std::string_view where, std::string_view text) {
  if (text == "on" || text == "true") return true;
  if (text == "off" || text == "false") return false;
  refuse(where, text, "is neither on nor off");
}

DType parse_dtype(std::string_view where, std::string_view text) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    if (text == name_of(dtype)) return dtype;
  refuse(where, text, "is neither fp32 nor bf16");
}

ByteSize parse_size(std::string_view where, std::string_view text) {
  if (const auto size = parse_byte_size(text)) return *size;
  refuse(where, text,
         "is not a size: give bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB: 12GB");
}

Duration parse_time(std::string_view where, std::string_view text) {
  if (const auto time = parse_duration(text)) return *time;
  refuse(where, text, "is not a time: give seconds, or numbers with d, h, m or s: 1h30m");
}

void check_choice(const OptionRow& row, std::string_view where, std::string_view text) {
  if (row.choices.empty() || std::ranges::find(row.choices, text) != row.choices.end()) return;
  refuse(where, text, fmt::format("is unknown: give {}", fmt::join(row.choices, ", ")));
}

constexpr std::string_view kWhole = "a whole number";

// Parses one value into the field, by its type.
struct Setter {
  const OptionRow& row;
  std::string_view where;
  std::string_view text;

  void operator()(std::string* field) const {
    const std::string_view choice = row.choice_of == nullptr ? text : row.choice_of(text);
    check_choice(row, where, choice);
    *field = choice;
  }
  void operator()(const NamedField& field) const {
    check_choice(row, where, text);
    field.set(text);
  }
  void operator()(std::vector<std::filesystem::path>* field) const { field->emplace_back(text); }
  void operator()(std::vector<std::string>* field) const { field->emplace_back(text); }
  void operator()(bool* field) const { *field = parse_switch(where, text); }
  void operator()(std::int64_t* field) const {
    check_choice(row, where, text);
    *field = parse_ranged<std::int64_t>(row, where, text, kWhole);
  }
  void operator()(std::uint64_t* field) const {
    *field = parse_number<std::uint64_t>(where, text, "a whole number of at least 0");
  }
  void operator()(float* field) const {
    *field = parse_ranged<float>(row, where, text, "a number");
  }
  void operator()(double* field) const {
    *field = parse_ranged<double>(row, where, text, "a number");
  }
  void operator()(DType* field) const { *field = parse_dtype(where, text); }
  void operator()(ByteSize* field) const {
    *field = parse_size(where, text);
    if (static_cast<double>(field->bytes) < row.range.low)
      refuse(where, text, fmt::format("is {} bytes: did you mean {}GB?", field->bytes, text));
  }
  void operator()(Duration* field) const { *field = parse_time(where, text); }
  void operator()(BatchSizes* field) const {
    for (const std::string_view stage : split(text, ","))
      field->stages.push_back(parse_stage(stage));
    if (field->stages.front().step != 0 || field->stages.front().share)
      refuse(where, text, "does not begin at step 0: give TOKENS@0,TOKENS@STEP");
  }
  [[nodiscard]] BatchSizes::Stage parse_stage(std::string_view stage) const {
    const std::size_t at = std::min(stage.find('@'), stage.size());
    BatchSizes::Stage out{.tokens =
                              parse_ranged<std::int64_t>(row, where, stage.substr(0, at), kWhole)};
    if (at == stage.size()) {
      if (stage != text)
        refuse(where, text, "has a batch without @STEP: give TOKENS@0,TOKENS@STEP");
      return out;
    }
    const std::string_view begin = stage.substr(at + 1);
    if (const auto step = whole_number(begin)) {
      out.step = *step;
    } else {
      out.share = real_number(begin);
      if (!out.share || !(*out.share > 0 && *out.share < 1))
        refuse(where, begin, "is neither a step nor a share of the run between 0 and 1");
    }
    return out;
  }
  template <class Value>
  void operator()(std::optional<Value>* field) const {
    field->reset();
    if (text == "auto") return;
    Value value{};
    (*this)(&value);
    *field = std::move(value);
  }
};

struct Text {
  std::string operator()(const std::string* field) const { return *field; }
  std::string operator()(const NamedField& field) const { return std::string(field.name()); }
  std::string operator()(const std::vector<std::filesystem::path>* field) const {
    std::string out;
    for (const std::filesystem::path& path : *field)
      out += (out.empty() ? "" : " ") + path.native();
    return out;
  }
  std::string operator()(const std::vector<std::string>* field) const {
    return fmt::format("{}", fmt::join(*field, " "));
  }
  std::string operator()(const bool* field) const { return *field ? "on" : "off"; }
  template <class Number>
  std::string operator()(const Number* field) const {
    return fmt::format("{}", *field);
  }
  std::string operator()(const DType* field) const { return std::string(name_of(*field)); }
  std::string operator()(const ByteSize* field) const { return to_text(*field); }
  std::string operator()(const Duration* field) const { return to_text(*field); }
  std::string operator()(const BatchSizes* field) const {
    if (field->stages.size() == 1) return fmt::format("{}", field->stages.front().tokens);
    std::string out;
    for (const auto& [tokens, step, share] : field->stages)
      out += fmt::format("{}{}@{}", out.empty() ? "" : ",", tokens,
                         share ? fmt::format("{}", *share) : fmt::format("{}", step));
    return out;
  }
  template <class Value>
  std::string operator()(const std::optional<Value>* field) const {
    return *field ? (*this)(&**field) : "auto";
  }
};

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_list(const OptionRow& row) {
  return std::holds_alternative<std::vector<std::filesystem::path>*>(row.field);
}

bool is_repeated(const OptionRow& row) {
  return std::holds_alternative<std::vector<std::string>*>(row.field);
}

void check_range(const OptionRange& range, double value, std::string_view where,
                 std::string_view text) {
  const bool in_range = std::isfinite(value) && value >= range.low && value <= range.high;
  if (!in_range && !(range.or_never && value == -1))  // NOLINT: -1 is exact
    refuse(where, text, fmt::format("is out of range: give {}", range_text(range)));
}

void set_option(const OptionRow& row, std::span<const std::string> values, std::string_view where) {
  if (is_list(row)) {
    std::get<std::vector<std::filesystem::path>*>(row.field)->clear();
  } else if (is_repeated(row)) {
    std::get<std::vector<std::string>*>(row.field)->clear();
  } else if (values.size() != 1) {
    throw input_error("{}: takes one value, not {}", where, values.size());
  }
  if (row.is_set != nullptr) {
    *row.is_set = values.front() != "auto";
    if (!*row.is_set) return;
  }
  for (const std::string& text : values) {
    if (!is_utf8(text)) refuse(where, text, "is not UTF-8, as config.toml and checkpoints must be");
    std::visit(Setter{row, where, text}, row.field);
  }
}

std::vector<std::string_view> values_of(const OptionRow& row) {
  if (std::holds_alternative<bool*>(row.field) ||
      std::holds_alternative<std::optional<bool>*>(row.field))
    return {"on", "off"};
  if (std::holds_alternative<DType*>(row.field) ||
      std::holds_alternative<std::optional<DType>*>(row.field))
    return {name_of(DType::kF32), name_of(DType::kBF16)};
  return row.choices;
}

std::string option_text(const OptionRow& row) {
  return row.is_set != nullptr && !*row.is_set ? "auto" : std::visit(Text{}, row.field);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return number;
}

std::optional<double> real_number(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::string short_value(const std::string& value) {
  const std::optional<double> number = value.size() > 8 ? real_number(value) : std::nullopt;
  return number ? fmt::format("{:.6g}", *number) : value;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view best;
  // Names at this distance are unrelated.
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  // Accepts a part of a name, such as --lr for --matrix-lr or --batch-size for --device-batch-size.
  if (best.empty() && name.size() >= 2)
    for (const std::string_view candidate : candidates)
      if (best.empty() && candidate.find(name) != std::string_view::npos) best = candidate;
  return best;
}

}  // namespace muo::trainer
