#pragma once

#include <span>

#include "data/input_files.h"
#include "data/token_data.h"

namespace muo::data {

// Text through options.tokenizer: each file is a document, which that tokenizer's token for the
// start of documents begins. Of `files`, whole ones are taken until
// options.max_bytes is reached; `val_files` are taken whole, or, if there are none:
// - of a document with more than a 200th of all tokens (where val_fraction is 0.1), the last
//   val_fraction are held out;
// - of the others every k-th block of that size is, k = round(1 / val_fraction).
// Held-out documents equal to one that is trained on are dropped. Throws InputError.
Corpus open_text(const DataOptions& options, std::span<const InputFile> files,
                 std::span<const InputFile> val_files);

}  // namespace muo::data
