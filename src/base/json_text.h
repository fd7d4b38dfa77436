#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace muo {

// The JSON of texts from outside, such as names of files, messages and samples: bytes of them that
// are not UTF-8 become U+FFFD, where dump() of the library throws. Indented as dump() indents.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// A path that is read back, as a list of its bytes, which need not be UTF-8.
nlohmann::json json_of_path(const std::filesystem::path& path);
std::filesystem::path path_of_json(const nlohmann::json& bytes);

}  // namespace muo
