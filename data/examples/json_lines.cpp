#include "data/examples/json_lines.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/strict_json.h"

namespace muo::data {
namespace {

bool is_text(const nlohmann::json& value) { return value.is_string() || value.is_number_integer(); }

std::string text_of_value(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void JsonLine::fail(const char* field, std::string_view what) const {
  throw InputError(concat(where_, ": \"", field, "\" ", what));
}

const nlohmann::json& JsonLine::value(const char* field) const {
  const auto found = object_.find(field);
  if (found == object_.end()) fail(field, "is missing");
  return *found;
}

std::string JsonLine::text(const char* field) const {
  const nlohmann::json& found = value(field);
  if (!is_text(found)) fail(field, concat("is of type ", found.type_name(), ", not a text"));
  return text_of_value(found);
}

std::vector<std::string> JsonLine::texts(const char* field) const {
  const nlohmann::json& found = value(field);
  if (!found.is_array() || found.size() < 2 || !std::ranges::all_of(found, is_text))
    fail(field, "is not a list of two or more texts");
  std::vector<std::string> out;
  for (const nlohmann::json& each : found)
    out.push_back(text_of_value(each));
  return out;
}

std::size_t JsonLine::index(const char* field, std::size_t bound) const {
  const nlohmann::json& found = value(field);
  const std::string digits = is_text(found) ? text_of_value(found) : std::string();
  std::size_t index = bound;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index >= bound)
    fail(field, concat("is ", found.dump(), ", not a whole number from 0 to ", bound - 1));
  return index;
}

void read_json_lines(const std::filesystem::path& path,
                     const std::function<void(const JsonLine& line, std::int64_t number)>& take) {
  const FileBytes file(path);
  const std::string_view text = file.text();
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = concat(path.native(), ": line ", ++number);
    const nlohmann::json value = parse_python_json(text.substr(at, end - at), where);
    if (!value.is_object()) throw InputError(concat(where, ": not a JSON object"));
    take(JsonLine(value, where), number);
    at = end + 1;
  }
  if (number == 0) throw InputError(concat(path.native(), ": the file is empty"));
}

}  // namespace muo::data
