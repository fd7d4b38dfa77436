#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muo {

// The part of TOML 1.0 that configurations need: `key = value` lines, where a value is a string,
// number, boolean or an array of those (over several lines if need be), and comments.
struct TomlEntry {
  std::string key;
  std::vector<std::string> values;  // as text, without quotes; one unless it is an array
  int line = 0;
};

// Throws InputError with `name` (of the file) and the line.
std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);

// A basic string, quoted and escaped.
std::string toml_string(std::string_view text);

}  // namespace muo
