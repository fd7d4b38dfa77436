#pragma once

#include <filesystem>
#include <vector>

#include "app/options/options.h"
#include "data/documents.h"
#include "data/input_files.h"

namespace muo::app {

// The files that a command reads text from: `paths` with folders and patterns resolved
// (list_files), and "-", standard input, behind them; that alone where there are none. What folders
// hold of the output folder `out` is no input. Throws InputError for what list_files refuses.
std::vector<data::InputFile> document_files(const std::vector<std::filesystem::path>& paths,
                                            const std::filesystem::path& out = {});

data::DocumentOptions document_options(const TextOptions& options);

// What a reader has left out and skipped, to standard output; nothing if that is nothing.
void print_left_out(const data::DocumentReader& reader);

}  // namespace muo::app
