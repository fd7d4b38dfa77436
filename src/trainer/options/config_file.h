#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/options/option_row.h"

namespace muo::trainer {

// Returns the file that --config names: an existing path, or the name of an installed file. Throws
// InputError if `name` is neither.
std::filesystem::path find_config(const std::string& name);

// Called before a row's field is set. Returns true if it has handled the values itself.
using TakeValues = std::function<bool(const OptionRow& row, std::span<const std::string> values,
                                      std::string_view where)>;

// Returns the text of a config file from which load_config() reads back the same values.
std::string config_text(std::span<const OptionRow> rows);

// A key of a config file, which is TOML 1.0 without tables and dates. The value is a string, a
// number, a boolean, or an array of these.
struct TomlEntry {
  std::string key;
  std::vector<std::string> values;  // as text, without quotes; exactly one unless it is an array
  int line = 0;
};

// Returns the entries in the order of their lines. Throws InputError with `name` (of the file) and
// the line.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);
// Parses a file and replaces each _ in a key by -.
std::vector<TomlEntry> read_config(const std::filesystem::path& file);

// Sets the rows named by the file's entries, except those that `take` handles. For an unknown key
// or an invalid value, throws InputError with the file, the line and the key.
void load_config(const std::filesystem::path& file, std::span<const TomlEntry> entries,
                 std::span<const OptionRow> rows, const TakeValues& take = {});

// Returns `text` as a TOML basic string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace muo::trainer
