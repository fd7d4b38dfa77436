#pragma once

#include <filesystem>
#include <vector>

#include "data/documents.h"
#include "data/input_files.h"
#include "trainer/options/options.h"

namespace muo::cli {

// Input files of a command: `paths` with folders and patterns resolved (list_files), then "-",
// standard input; only that if `paths` is empty. Files found inside the output folder `out` are
// excluded. Throws InputError for what list_files rejects.
std::vector<data::InputFile> document_files(const std::vector<std::filesystem::path>& paths,
                                            const std::filesystem::path& out = {});

data::DocumentOptions document_options(const trainer::TextOptions& options);

// Prints what a reader has left out and skipped, if anything, to standard output.
void print_left_out(const data::DocumentReader& reader);

}  // namespace muo::cli
