#pragma once

#include <filesystem>
#include <vector>

namespace muo {

// The files that a command reads text from: `paths` with folders and patterns resolved
// (list_files), and "-", standard input, as it is; that alone where there are none. Throws
// InputError for what list_files refuses, and for Parquet, which would be read as text.
std::vector<std::filesystem::path> document_files(const std::vector<std::filesystem::path>& paths);

}  // namespace muo
