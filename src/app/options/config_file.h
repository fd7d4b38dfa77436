#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/option_row.h"

namespace muo::app {

// The file that --config means: a path, or the name of one that is installed. Throws InputError for
// a name that is neither.
std::filesystem::path find_config(const std::string& name);

// Is asked before a row's field is set: true if it has taken the values itself.
using TakeValues = std::function<bool(const OptionRow& row, std::span<const std::string> values,
                                      std::string_view where)>;

// The rows as a file that load_config reads back to the same values.
std::string config_text(std::span<const OptionRow> rows);

// A key of a configuration, which is TOML 1.0 without tables and dates: its value is a string, a
// number, a boolean, or an array of those.
struct TomlEntry {
  std::string key;
  std::vector<std::string> values;  // as text, without quotes; one unless it is an array
  int line = 0;
};

// In the order of the lines. Throws InputError with `name` (of the file) and the line.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);
// The same of a file, with - for each _ in a key.
std::vector<TomlEntry> read_config(const std::filesystem::path& file);

// Sets the rows that entries of the file name, except those that `take` takes. Throws InputError
// naming file, line and key for what is unknown or wrong.
void load_config(const std::filesystem::path& file, std::span<const TomlEntry> entries,
                 std::span<const OptionRow> rows, const TakeValues& take = {});

// A basic string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace muo::app
