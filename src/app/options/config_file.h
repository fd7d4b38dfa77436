#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "app/options/option_table.h"

namespace muo {

// The file that --config means: a path, or the name of one of those that come along ("quick.toml";
// in share/muograph/configs beside the program's folder when installed, in configs of the clone
// that it was built in). What is not found is returned as it is.
std::filesystem::path find_config(const std::string& name);

// Sets the rows that the file names, except those that `skip` says (given on the command line).
// Throws InputError naming file, line and key for what is unknown or wrong.
void load_config(const std::filesystem::path& file, std::span<const OptionRow> rows,
                 const std::function<bool(std::string_view)>& skip);

// The rows as a file that load_config reads back to the same values.
std::string config_text(std::span<const OptionRow> rows);

}  // namespace muo
