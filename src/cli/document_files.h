#pragma once

#include <filesystem>
#include <vector>

#include "data/documents.h"
#include "data/input_files.h"
#include "trainer/options/options.h"

namespace muo::cli {

// The input files of a command: `paths` with folders and patterns resolved (list_files()), followed
// by "-" for standard input if that is given, or only "-" if `paths` is empty. Files inside the
// output folder `out` are excluded. Throws InputError for what list_files() rejects.
std::vector<data::InputFile> document_files(const std::vector<std::filesystem::path>& paths,
                                            const std::filesystem::path& out = {});

data::DocumentOptions document_options(const trainer::TextOptions& options);

// Prints to standard output what a reader has left out and skipped, if anything.
void print_left_out(const data::DocumentReader& reader);

}  // namespace muo::cli
