#pragma once

#include <span>

#include "data/input_files.h"
#include "data/token_data.h"

namespace muo {

// Text through options.tokenizer: each file is a document, which that tokenizer's token for the
// start of documents begins. Of `files`, whole ones are taken until
// options.max_bytes is reached; `val_files` are taken whole, or, if there are none:
// - with 20 documents or more, each k-th is held out, k = round(1 / val_fraction);
// - with fewer, the last val_fraction of the tokens are.
// Held-out documents equal to one that is trained on are dropped. Throws InputError.
Corpus open_text(const DataOptions& options, std::span<const InputFile> files,
                 std::span<const InputFile> val_files);

}  // namespace muo
