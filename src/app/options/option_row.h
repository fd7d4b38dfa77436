#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/enum_names.h"

namespace muo::app {

// What a change of an option asks of a training step that is captured already: whether a sweep over
// it can replay the same graph.
enum class OptionClass : std::uint8_t {
  kOther,     // of a command that captures no training step
  kHost,      // nothing: the step does not know it (data order, evaluation, saving, logging)
  kMemory,    // nothing: read from device memory (HyperParameters)
  kCaptured,  // another capture in the same memory: a constant of the graph, or its form
  kShape,     // another memory plan as well: sizes of tensors, formats, devices
};

// A field that is an enumeration, or an optional one: an empty one has a name of its own.
class NamedField {
 public:
  template <NamedEnum Enum>
  NamedField(Enum* field)  // NOLINT(google-explicit-constructor): as the other fields
      : names_(kNames<Enum>.begin(), kNames<Enum>.end()),
        get_([field] { return static_cast<std::size_t>(*field); }),
        set_([field](std::size_t i) { *field = static_cast<Enum>(i); }) {}
  template <NamedEnum Enum>
  NamedField(std::optional<Enum>* field,  // NOLINT(google-explicit-constructor)
             std::string_view empty = "auto")
      : names_(kNames<Enum>.begin(), kNames<Enum>.end()),
        get_([field] { return *field ? static_cast<std::size_t>(**field) + 1 : 0; }),
        set_([field](std::size_t i) {
          *field = i == 0 ? std::nullopt : std::optional(static_cast<Enum>(i - 1));
        }) {
    names_.insert(names_.begin(), empty);
  }

  [[nodiscard]] const std::vector<std::string_view>& names() const { return names_; }
  [[nodiscard]] std::string_view name() const { return names_[get_()]; }
  // One of names().
  void set(std::string_view name) const {
    set_(static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin()));
  }

 private:
  std::vector<std::string_view> names_;
  std::function<std::size_t()> get_;
  std::function<void(std::size_t)> set_;
};

// What an option that is a number may be.
struct OptionRange {
  double low = 0, high = std::numeric_limits<double>::max();
  bool or_never = false;  // or -1
};
inline constexpr bool kOrNever = true;

// One option of a command: command line, config file, help and config.toml all follow this, so that
// none of them can disagree with another.
struct OptionRow {
  using Field =
      std::variant<std::string*, std::vector<std::filesystem::path>*, std::vector<std::string>*,
                   bool*, std::int64_t*, std::uint64_t*, float*, double*, DType*,
                   std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*,
                   std::optional<DType>*, std::optional<ByteSize>*, NamedField>;

  std::string_view name;  // without dashes: "device-batch-size"; the key in a config file
  std::string_view group;
  OptionClass kind = OptionClass::kOther;
  std::string_view value;  // placeholder in help, with the unit: "TOKENS"
  std::string_view help;
  Field field;  // the default is what it holds
  OptionRange range = {};
  std::vector<std::string_view> choices = {};
  std::string choices_help = {};  // further lines of help
  // Another spelling of a choice as that choice, other text as it is.
  std::string_view (*choice_of)(std::string_view) = nullptr;
  // Options whose values from a config file lose their meaning when this one is given on the
  // command line.
  std::vector<std::string_view> replaces = {};
  bool required = false;
  bool positional = false;       // may be given without its name
  std::string_view letter = {};  // its short name: "-o"
  bool saved = true;             // in config.toml
  bool trains = false;           // tells what is trained: that it changed is said at --resume
  bool file = false;             // names a file; lists always do
  bool* is_told = nullptr;       // false: automatic, whatever the field holds

  // For tables: the row with more said of it.
  OptionRow one_of(std::vector<std::string_view> names, std::string summaries = {}) && {
    choices = std::move(names), choices_help = std::move(summaries);
    return std::move(*this);
  }
  OptionRow explained(std::string summaries) && {
    choices_help = std::move(summaries);
    return std::move(*this);
  }
  OptionRow replacing(std::vector<std::string_view> names) && {
    replaces = std::move(names);
    return std::move(*this);
  }
  OptionRow needed() && {
    required = true;
    return std::move(*this);
  }
  OptionRow unsaved() && {
    saved = false;
    return std::move(*this);
  }
  OptionRow training() && {
    trains = true;
    return std::move(*this);
  }
  OptionRow naming_file() && {
    file = true;
    return std::move(*this);
  }
};

// Makes the rows of one group.
struct OptionGroup {
  std::string_view name;
  bool trains = false;

  OptionRow operator()(std::string_view option, OptionClass kind, std::string_view value,
                       std::string_view help, OptionRow::Field field,
                       OptionRange range = {}) const {
    const auto* const named = std::get_if<NamedField>(&field);
    return {.name = option,
            .group = name,
            .kind = kind,
            .value = value,
            .help = help,
            .field = field,
            .range = range,
            .choices = named == nullptr ? std::vector<std::string_view>() : named->names(),
            .trains = trains};
  }
};

// Parses `values` into the row's field. `where` leads the message of the InputError that wrong
// ones cause: "--depth" or "run.toml:3: depth".
void set_option(const OptionRow& row, std::span<const std::string> values, std::string_view where);

// Throws the InputError of set_option() if `value`, which was written as `text`, is not in the
// range.
void check_range(const OptionRange& range, double value, std::string_view where,
                 std::string_view text);

// Whether it takes several values: behind one another, or each with the option's name.
[[nodiscard]] bool is_list(const OptionRow& row);
[[nodiscard]] bool is_repeated(const OptionRow& row);
// All values that the option may have, if they are few words.
[[nodiscard]] std::vector<std::string_view> values_of(const OptionRow& row);
// The field's value as people write it: "0.02", "on", "auto".
[[nodiscard]] std::string option_text(const OptionRow& row);

// throw input_error("--out {}: exists and is not a directory", out);
template <class... Values>
[[nodiscard]] InputError input_error(fmt::format_string<Values...> format, Values&&... values) {
  return InputError(fmt::format(format, std::forward<Values>(values)...));
}

// The number from 0 on that is all of `text`; empty: it is none.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);
// The same for any number.
[[nodiscard]] std::optional<double> real_number(std::string_view text);
// An option's value to look at: of a long number six digits.
[[nodiscard]] std::string short_value(const std::string& value);

// The candidate that is most like `name`; empty if none is close.
[[nodiscard]] std::string_view nearest_name(std::string_view name,
                                            std::span<const std::string_view> candidates);

}  // namespace muo::app
