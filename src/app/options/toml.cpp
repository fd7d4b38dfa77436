#include "app/options/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"

namespace {
[[noreturn]] void fail_assertion(const char* condition) { throw std::logic_error(condition); }
}  // namespace
// Some malformed keys fail assertions of toml++ 3.3, which would end the process.
#define TOML_ASSERT(condition) ((condition) ? void() : ::fail_assertion(#condition))
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace muo {
namespace {

// As set_option() takes it. Floating-point numbers keep a mark of being some.
std::string scalar_text(const toml::node& node, std::string_view where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) {
    std::string text = fmt::format("{}", number->get());
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  throw InputError(
      fmt::format("{}: give a string in quotes, a number, true, false, or [an, array] of those: "
                  "tables and dates are not used here",
                  where));
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name) {
  std::vector<TomlEntry> entries;
  try {
    for (const auto& [key, node] : toml::parse(text, name)) {
      TomlEntry entry{.key = std::string(key.str()),
                      .values = {},
                      .line = static_cast<int>(key.source().begin.line)};
      const std::string where = fmt::format("{}:{}: {}", name, entry.line, entry.key);
      if (const toml::array* array = node.as_array()) {
        for (const toml::node& element : *array)
          entry.values.push_back(scalar_text(element, where));
      } else {
        entry.values = {scalar_text(node, where)};
      }
      entries.push_back(std::move(entry));
    }
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}: {} (lines are key = value, strings are in quotes)", name,
                                 error.source().begin.line, error.description()));
  } catch (const std::logic_error& error) {
    throw InputError(fmt::format("{}: not TOML ({} does not hold)", name, error.what()));
  }
  std::ranges::sort(entries, {}, &TomlEntry::line);  // toml++ sorts by key
  return entries;
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace muo
