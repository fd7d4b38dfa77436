#pragma once

#include <span>

#include "data/input_files.h"
#include "data/token_data.h"

namespace muo::data {

// Tokenizes text files with options.tokenizer. Each file is a document, preceded by the tokenizer's
// start-of-document token. Whole files of `files` are taken until options.max_bytes is reached;
// `val_files` are taken completely. If there are none:
// - of a document with more than a 200th of all tokens (for val_fraction 0.1), the last
//   val_fraction are held out;
// - of the other documents, every k-th block of that size is held out, k = round(1 / val_fraction).
// Held-out documents that equal a training document are dropped. Throws InputError.
Corpus open_text(const DataOptions& options, std::span<const InputFile> files,
                 std::span<const InputFile> val_files);

}  // namespace muo::data
