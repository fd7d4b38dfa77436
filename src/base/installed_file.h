#pragma once

#include <filesystem>
#include <string>

namespace muo {

// A file that is installed with this program ("configs/quick.toml", "scripts/read_parquet.py"): in
// share/muograph beside the program's folder, or in the clone that it was built in. Empty: there is
// none.
[[nodiscard]] std::filesystem::path installed_file(const std::string& name);
// Its path as a shell reads it; `name` itself where there is none.
[[nodiscard]] std::string installed_word(const std::string& name);

}  // namespace muo
