#pragma once

#include <filesystem>
#include <string>

namespace muo {

// Returns the path of a file that is installed with this program ("configs/quick.toml",
// "scripts/read_parquet.py"): in share/muograph beside the program's folder, or in the source tree
// of the build. Empty if the file is not found.
[[nodiscard]] std::filesystem::path installed_file(const std::string& name);
// Returns installed_file(name) quoted for a shell, or `name` itself if the file is not found.
[[nodiscard]] std::string installed_word(const std::string& name);

}  // namespace muo
