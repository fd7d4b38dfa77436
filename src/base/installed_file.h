#pragma once

#include <filesystem>
#include <string>

namespace muo {

// The path of a file that is installed with this program ("configs/quick.toml",
// "scripts/read_parquet.py"): in share/muograph beside the program's folder, or in the source tree
// it was built in. Empty if it is not found.
[[nodiscard]] std::filesystem::path installed_file(const std::string& name);
// Quotes installed_file(name) for a shell; returns `name` itself if the file is not found.
[[nodiscard]] std::string installed_word(const std::string& name);

}  // namespace muo
