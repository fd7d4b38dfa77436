#include "trainer/options/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/installed_file.h"
#include "base/system_error_text.h"
#include "base/utf8.h"
#include "trainer/options/foreign_options.h"

namespace {
[[noreturn]] void fail_assertion(const char* condition) { throw std::logic_error(condition); }
}  // namespace
// Some malformed keys fail assertions of toml++ 3.3, which would abort the process.
#define TOML_ASSERT(condition) ((condition) ? void() : ::fail_assertion(#condition))
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace muo::trainer {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw input_error("--config {}: is a directory", file.string());
  std::ifstream in(file, std::ios::binary);
  if (!in) throw input_error("--config {}: {}", file.string(), system_error_text(errno));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the absolute paths of a row's files, so that config.toml works from any folder; relative
// paths are also given in a comment. A relative path is kept if its absolute path is not UTF-8,
// which TOML requires.
std::string files_text(const OptionRow& row) {
  const std::vector<std::filesystem::path> paths =
      is_list(row) ? *std::get<std::vector<std::filesystem::path>*>(row.field)
                   : std::vector<std::filesystem::path>{*std::get<std::string*>(row.field)};
  std::vector<std::string> names, given;
  for (const std::filesystem::path& path : paths) {
    const bool is_relative = path.is_relative() && !path.empty() && path != "byte" &&
                             is_utf8(std::filesystem::absolute(path).native());
    names.push_back(toml_string((is_relative ? std::filesystem::absolute(path) : path).native()));
    if (is_relative) given.push_back(toml_string(path.native()));
  }
  const std::string value = fmt::format("{}", fmt::join(names, ", "));
  return (is_list(row) ? "[" + value + "]" : value) +
         (given.empty() ? "" : fmt::format("  # given as {}", fmt::join(given, ", ")));
}

std::string value_text(const OptionRow& row) {
  if (row.file || is_list(row)) return files_text(row);
  std::string text = option_text(row);
  if ((std::holds_alternative<bool*>(row.field) ||
       std::holds_alternative<std::optional<bool>*>(row.field)) &&
      text != "auto")
    return text == "on" ? "true" : "false";
  const auto* seed = std::get_if<std::uint64_t*>(&row.field);
  const bool quoted = text == "auto" || std::holds_alternative<std::string*>(row.field) ||
                      std::holds_alternative<NamedField>(row.field) ||
                      std::holds_alternative<DType*>(row.field) ||
                      std::holds_alternative<std::optional<DType>*>(row.field) ||
                      std::holds_alternative<std::optional<ByteSize>*>(row.field) ||
                      std::holds_alternative<std::optional<Duration>*>(row.field) ||
                      (std::holds_alternative<std::optional<BatchSizes>*>(row.field) &&
                       text.find('@') != std::string::npos) ||
                      // TOML's integers are signed and have 64 bits.
                      (seed != nullptr && !std::in_range<std::int64_t>(**seed));
  return quoted ? toml_string(text) : text;
}

// Returns the position after the string that begins at text[at]. A single-line string ends at the
// end of its line even if it is not closed.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const bool is_long = text.substr(at, 3) == triple;
  for (at += is_long ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"')
      ++at;
    else if (is_long ? text.substr(at, 3) == triple : text[at] == quote || text[at] == '\n')
      break;
  }
  // Up to two quotes directly before the closing three belong to the string.
  return std::min(is_long ? text.find_first_not_of(quote, at) : at + 1, text.size());
}

// toml++ 3.3 has undefined behaviour for non-ASCII bytes wherever it skips white space. So each
// such byte is passed as Zhh, and a Z as ZZ. (A Z written as \u005A before two hex digits above 7F
// would be decoded wrongly.)
std::string escape_non_ascii(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text)
    if (const auto byte = static_cast<unsigned char>(c); byte > 0x7F)
      out += fmt::format("Z{:02x}", byte);
    else
      out.append(c == 'Z' ? 2 : 1, c);
  return out;
}
std::string unescape_non_ascii(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const hex = text.data() + at + 1;
    if (text[at] == 'Z' && text.size() - at > 2 &&
        std::from_chars(hex, hex + 2, byte, 16).ptr == hex + 2 && byte > 0x7F) {
      out += static_cast<char>(byte);
      at += 2;
    } else {
      out += text[at];
      if (text.substr(at, 2) == "ZZ") ++at;
    }
  }
  return out;
}

// Returns the value as text for set_option(). A floating-point number keeps a point or an exponent,
// so that it is not accepted as an integer.
std::string scalar_text(const toml::node& node, std::string_view where) {
  if (const auto* text = node.as_string()) return unescape_non_ascii(text->get());
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) {
    std::string text = fmt::format("{}", number->get());
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  throw input_error(
      "{}: unsupported value: give a string in quotes, a number, true, false, or [an, array] of "
      "those, not a table or a date",
      where);
}

// Throws InputError if the text is not UTF-8 or has a key with many dots: toml++ limits the nesting
// of values, but not of the tables that a dotted key creates, and destroys these recursively. No
// option has such a key.
void check_text(std::string_view text, std::string_view name) {
  constexpr int kMaxDots = 4;
  const auto line_of = [text](std::size_t place) {
    return 1 + std::ranges::count(text.substr(0, place), '\n');
  };
  if (const std::size_t valid = utf8_prefix(text); valid < text.size())
    throw input_error("{}:{}: not UTF-8", name, line_of(valid));
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') at = end_of_string(text, at) - 1;
    if (c == '#') at = std::min(text.find('\n', at), text.size());
    if (c == '#' || c == '\n' || c == '=' || c == ',' || c == '{') dots = 0;
    if (c == '.' && ++dots > kMaxDots)
      throw input_error("{}:{}: dotted key: write options as plain keys", name, line_of(at));
  }
}

}  // namespace

std::filesystem::path find_config(const std::string& name) {
  std::filesystem::path given = name;
  std::error_code error;
  if (given.has_parent_path() || std::filesystem::exists(given, error)) return given;
  std::filesystem::path installed = installed_file("configs/" + name);
  if (!installed.empty()) return installed;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(
           installed_file("configs/quick.toml").parent_path(), error))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  throw input_error("--config {}: no such file{}{}", name,
                    names.empty() ? "" : "; installed files: ", fmt::join(names, ", "));
}

void load_config(const std::filesystem::path& file, std::span<const TomlEntry> entries,
                 std::span<const OptionRow> rows, const TakeValues& take) {
  std::vector<std::string_view> names(rows.size());
  std::ranges::transform(rows, names.begin(), &OptionRow::name);
  for (const TomlEntry& entry : entries) {
    const std::string where = fmt::format("{}:{}: {}", file.string(), entry.line, entry.key);
    const auto row = std::ranges::find(rows, entry.key, &OptionRow::name);
    if (row == rows.end()) {
      if (const std::string here = foreign_option("--" + entry.key); !here.empty())
        throw input_error("{}: unknown key: {}", where, here);
      const std::string_view near = nearest_name(entry.key, names);
      throw input_error("{}: unknown key{}", where,
                        near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    if (take && take(*row, entry.values, where)) continue;
    set_option(*row, entry.values, where);
  }
}

std::vector<TomlEntry> read_config(const std::filesystem::path& file) {
  std::vector<TomlEntry> entries = parse_toml(read_text(file), file.string());
  for (TomlEntry& entry : entries)
    std::ranges::replace(entry.key, '_', '-');
  return entries;
}

std::string config_text(std::span<const OptionRow> rows) {
  std::string out;
  std::string_view group;
  for (const OptionRow& row : rows) {
    if (!row.saved) continue;
    if (row.group != group) out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", row.group);
    group = row.group;
    out += fmt::format("{} = {}\n", row.name, value_text(row));
  }
  return out;
}

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  check_text(text, name);
  std::vector<TomlEntry> entries;
  try {
    for (const auto& [key, node] : toml::parse(escape_non_ascii(text), name)) {
      TomlEntry entry{.key = unescape_non_ascii(key.str()),
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
    throw input_error("{}:{}: {} (write key = value, with strings in quotes)", name,
                      error.source().begin.line, unescape_non_ascii(error.description()));
  } catch (const std::logic_error& error) {
    throw input_error("{}: invalid TOML (toml++: {})", name, error.what());
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

}  // namespace muo::trainer
