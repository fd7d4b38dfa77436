#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kit/report/run_history.h"

namespace muo::cli {

// Prints "muograph: note: TEXT" on standard error.
void note(const std::string& text);

// The given runs, with each sweep replaced by those of its trials that have started. Throws
// InputError for a sweep without any.
std::vector<std::filesystem::path> runs_of(const std::vector<std::filesystem::path>& given);
// Removes duplicates, which may be given by different paths, with a note.
std::vector<std::filesystem::path> without_duplicates(
    const std::vector<std::filesystem::path>& runs);
// Reads a run; prints its notes.
kit::RunHistory read_noted(const std::filesystem::path& directory);

}  // namespace muo::cli
