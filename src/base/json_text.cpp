#include "base/json_text.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace muo {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::json json_of_path(const std::filesystem::path& path) {
  const std::string& name = path.native();
  // NOLINTNEXTLINE(modernize-return-braced-init-list): braces would make a list in a list
  return nlohmann::json(std::vector<unsigned char>(name.begin(), name.end()));
}

std::filesystem::path path_of_json(const nlohmann::json& bytes) {
  const auto name = bytes.get<std::vector<unsigned char>>();
  return std::string(name.begin(), name.end());
}

}  // namespace muo
