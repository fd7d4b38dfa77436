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
#include "base/duration.h"
#include "base/enum_names.h"
#include "trainer/options/batch_sizes.h"

namespace muo::trainer {

// What must be redone if an option changes after the training step has been captured. This decides
// whether a sweep over the option can replay the same graph.
enum class OptionClass : std::uint8_t {
  kOther,   // for options of commands that capture no training step
  kHost,    // nothing: used only on the host (data order, evaluation, saving, logging)
  kMemory,  // nothing: the step reads the value from device memory (HyperParameters)
  // Capture, in the same memory: the value is a constant of the graph or changes its form.
  kCaptured,
  kShape,  // memory plan and capture: the value changes sizes of tensors, formats or devices
};

// A field that is an enumeration or an optional one. An empty optional has a name of its own, such
// as "auto".
class NamedField {
 public:
  template <NamedEnum Enum>
  NamedField(Enum* field)  // NOLINT(google-explicit-constructor): like the other fields
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
  // Precondition: `name` is one of names().
  void set(std::string_view name) const {
    set_(static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin()));
  }

 private:
  std::vector<std::string_view> names_;
  std::function<std::size_t()> get_;
  std::function<void(std::size_t)> set_;
};

// The values that a numeric option accepts.
struct OptionRange {
  double low = 0, high = std::numeric_limits<double>::max();
  bool or_never = false;  // also accepts -1 (never)
};
inline constexpr bool kOrNever = true;

// One option of a command: the only source for command line, config file, help and config.toml.
struct OptionRow {
  using Field =
      std::variant<std::string*, std::vector<std::filesystem::path>*, std::vector<std::string>*,
                   bool*, std::int64_t*, std::uint64_t*, float*, double*, DType*,
                   std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*,
                   std::optional<DType>*, std::optional<ByteSize>*, std::optional<Duration>*,
                   std::optional<BatchSizes>*, NamedField>;

  std::string_view name;  // without dashes: "device-batch-size"; also the key in a config file
  std::string_view group;
  OptionClass kind = OptionClass::kOther;
  std::string_view value;  // placeholder in help, with the unit: "TOKENS"
  std::string_view help;
  Field field;  // holds the default until it is set
  OptionRange range = {};
  std::vector<std::string_view> choices = {};
  std::string choices_help = {};  // further lines of help
  // Maps an alternative spelling of a choice to that choice; returns other text unchanged.
  std::string_view (*choice_of)(std::string_view) = nullptr;
  // Options that this one replaces: if the command line gives this option, their values from a
  // config file are ignored.
  std::vector<std::string_view> replaces = {};
  bool required = false;
  bool positional = false;       // may be given without its name
  std::string_view letter = {};  // short name: "-o"
  bool saved = true;             // written to config.toml
  bool trains = false;           // affects what is trained: --resume reports a change
  bool file = false;             // the value is a path of a file; true for all lists
  bool* is_set = nullptr;        // set to false by "auto", which leaves the field unchanged

  // Setters for tables: each returns the row with one property set.
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
  OptionRow is_file() && {
    file = true;
    return std::move(*this);
  }
};

// Creates the rows of one group.
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

// Parses `values` into the row's field. Throws InputError for invalid values, with a message that
// begins with `where`: "--depth" or "run.toml:3: depth".
void set_option(const OptionRow& row, std::span<const std::string> values, std::string_view where);

// Throws set_option()'s InputError if `value`, parsed from `text`, is out of range.
void check_range(const OptionRange& range, double value, std::string_view where,
                 std::string_view text);

// True if the option takes several values. is_list(): all after one option name. is_repeated():
// each after the option name.
[[nodiscard]] bool is_list(const OptionRow& row);
[[nodiscard]] bool is_repeated(const OptionRow& row);
// Returns all values that the option accepts if they can be listed, otherwise nothing.
[[nodiscard]] std::vector<std::string_view> values_of(const OptionRow& row);
// Returns the field's value as written on a command line: "0.02", "on", "auto".
[[nodiscard]] std::string option_text(const OptionRow& row);

// Formats an InputError: throw input_error("--out {}: exists and is not a directory", out);
template <class... Values>
[[nodiscard]] InputError input_error(fmt::format_string<Values...> format, Values&&... values) {
  return InputError(fmt::format(format, std::forward<Values>(values)...));
}

// Parses all of `text` as a decimal integer >= 0. Empty if it is not one.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);
// Parses all of `text` as a floating-point number. Empty if it is not one.
[[nodiscard]] std::optional<double> real_number(std::string_view text);
// Returns an option's value for display; numbers of more than 8 characters have 6 digits.
[[nodiscard]] std::string short_value(const std::string& value);

// Returns the candidate most similar to `name`. Empty if none is similar.
[[nodiscard]] std::string_view nearest_name(std::string_view name,
                                            std::span<const std::string_view> candidates);

}  // namespace muo::trainer
