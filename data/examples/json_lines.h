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

// A JSON object on a line of a file. What is asked for and not there, or of another kind, is an
// InputError that names the file, the line and the field.
class JsonLine {
 public:
  JsonLine(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Texts; whole numbers become theirs, as Python's str() writes them.
  [[nodiscard]] std::string text(const char* field) const;
  [[nodiscard]] std::vector<std::string> texts(const char* field) const;  // at least two
  // A whole number in [0, bound), or a text of one, as HellaSwag's labels are in some copies.
  [[nodiscard]] std::size_t index(const char* field, std::size_t bound) const;
  [[nodiscard]] const std::string& where() const { return where_; }  // "FILE: line N"

 private:
  [[nodiscard]] const nlohmann::json& value(const char* field) const;
  [[noreturn]] void fail(const char* field, std::string_view what) const;

  const nlohmann::json& object_;
  std::string where_;
};

// Calls `take` for each line, in order, from 1 on. Throws InputError if there is none, or if one is
// no object.
void read_json_lines(const std::filesystem::path& path,
                     const std::function<void(const JsonLine& line, std::int64_t number)>& take);

}  // namespace muo::data
