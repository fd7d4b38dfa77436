#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// A JSON object on one line of a file. The accessors throw InputError, which names the file, the
// line and the field, if a field is missing or has another type.
class JsonLine {
 public:
  JsonLine(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Texts. Whole numbers are converted to text as Python's str() does.
  [[nodiscard]] std::string text(const char* field) const;
  [[nodiscard]] std::vector<std::string> texts(const char* field) const;  // at least two
  // A whole number in [0, bound). It may also be a text, because some copies of HellaSwag
  // store labels as text.
  [[nodiscard]] std::size_t index(const char* field, std::size_t bound) const;
  [[nodiscard]] const std::string& where() const { return where_; }  // "FILE: line N"

 private:
  [[nodiscard]] const nlohmann::json& value(const char* field) const;
  [[noreturn]] void fail(const char* field, std::string_view what) const;

  const nlohmann::json& object_;
  std::string where_;
};

// Calls `take` for each line in order, with `number` from 1. Throws InputError if the file is empty
// or a line is not a JSON object.
void read_json_lines(const std::filesystem::path& path,
                     const std::function<void(const JsonLine& line, std::int64_t number)>& take);

}  // namespace muo::data
