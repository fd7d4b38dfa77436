#include "app/options/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "app/options/toml.h"
#include "base/check.h"

namespace muo {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw InputError(fmt::format("--config {}: is a directory", file.string()));
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw InputError(
        fmt::format("--config {}: {}", file.string(), std::generic_category().message(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_number(const OptionRow& row) {
  return std::visit(
      []<class Field>(const Field* /*field*/) {
        return std::is_arithmetic_v<Field> || std::is_same_v<Field, std::optional<std::int64_t>> ||
               std::is_same_v<Field, std::optional<double>>;
      },
      row.field);
}

std::string value_text(const OptionRow& row) {
  if (is_list(row)) {
    std::string out;
    for (const auto& path : *std::get<std::vector<std::filesystem::path>*>(row.field))
      out += (out.empty() ? "" : ", ") + toml_string(path.native());
    return "[" + out + "]";
  }
  std::string text = option_text(row);
  if (std::holds_alternative<bool*>(row.field) && text != "auto")
    return text == "on" ? "true" : "false";
  const auto* seed = std::get_if<std::uint64_t*>(&row.field);
  if (seed != nullptr && !std::in_range<std::int64_t>(**seed)) return toml_string(text);  // TOML's
  return is_number(row) && text != "auto" ? text : toml_string(text);
}

}  // namespace

std::filesystem::path find_config(const std::string& name) {
  std::filesystem::path given = name;
  std::error_code error;
  if (given.has_parent_path() || std::filesystem::exists(given, error)) return given;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"../share/muograph/configs", "../../configs"})
    if (const auto file = program / folder / given; std::filesystem::exists(file, error))
      return file.lexically_normal();
  return given;
}

void load_config(const std::filesystem::path& file, std::span<const OptionRow> rows,
                 const std::function<bool(std::string_view)>& skip) {
  std::vector<std::string_view> names(rows.size());
  std::ranges::transform(rows, names.begin(), &OptionRow::name);
  for (TomlEntry& entry : parse_toml(read_text(file), file.string())) {
    std::ranges::replace(entry.key, '_', '-');
    const std::string where = fmt::format("{}:{}: {}", file.string(), entry.line, entry.key);
    const auto row = std::ranges::find(rows, entry.key, &OptionRow::name);
    if (row == rows.end()) {
      const std::string_view near = nearest_name(entry.key, names);
      throw InputError(fmt::format("{}: unknown key{}", where,
                                   near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    }
    if (!skip(row->name)) set_option(*row, entry.values, where);
  }
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

}  // namespace muo
