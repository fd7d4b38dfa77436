#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizer.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {

// Returns the tokenizer of a checkpoint's model, as an argument for open_tokenizer(): the file
// beside the checkpoint or in its run directory (find_tokenizer_in()), otherwise the one that its
// options name. Empty if unknown, for example if the model was trained on shards without a
// tokenizer.
std::filesystem::path find_run_tokenizer(const Checkpoint& checkpoint);

// Opens that tokenizer; null if unknown. Throws InputError if its fingerprint differs from the
// checkpoint's.
std::shared_ptr<const data::Tokenizer> open_run_tokenizer(const Checkpoint& checkpoint);

// Throws InputError if the checkpoint was trained with another tokenizer. Does nothing if
// `tokenizer` is null or the checkpoint has no fingerprint. The message begins with `what`.
void require_same_tokenizer(const Checkpoint& checkpoint, const data::Tokenizer* tokenizer,
                            std::string_view what);

}  // namespace muo::trainer
