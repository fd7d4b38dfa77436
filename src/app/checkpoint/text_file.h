#pragma once

#include <filesystem>
#include <string_view>

namespace muo {

// Writes a file, by one of another name beside it that is then renamed: a reader, and a crash, find
// the old contents or the new ones. Throws Error with path and reason, and leaves nothing.
void replace_file(const std::filesystem::path& file, std::string_view contents);

}  // namespace muo
