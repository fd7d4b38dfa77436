#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>

namespace muo {

// Serializes JSON whose strings may be file names, messages or samples: bytes that are not UTF-8
// become U+FFFD (the library's dump() would throw). `indent` is as for dump().
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// A path as a list of its bytes, which need not be UTF-8, and back.
nlohmann::json json_of_path(const std::filesystem::path& path);
std::filesystem::path path_of_json(const nlohmann::json& bytes);

}  // namespace muo
