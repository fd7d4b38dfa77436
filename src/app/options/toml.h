#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muo {

// A key of a configuration, which is TOML 1.0 without tables and dates: its value is a string, a
// number, a boolean, or an array of those.
struct TomlEntry {
  std::string key;
  std::vector<std::string> values;  // as text, without quotes; one unless it is an array
  int line = 0;
};

// In the order of the lines. Throws InputError with `name` (of the file) and the line.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);

// A basic string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace muo
