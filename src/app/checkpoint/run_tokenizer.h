#pragma once

#include <filesystem>
#include <memory>

#include "app/checkpoint/checkpoint.h"
#include "data/tokenizer.h"

namespace muo::app {

// What a checkpoint's model was trained with, as open_tokenizer() takes it: the tokenizer beside it
// or in its run directory (find_tokenizer_in), else what its options name. Empty: nothing tells, as
// where it was trained on shards without a tokenizer.
std::filesystem::path find_run_tokenizer(const Checkpoint& checkpoint);

// The same, opened; null: nothing tells. Throws InputError where the fingerprint is not the one
// that the checkpoint names.
std::shared_ptr<const data::Tokenizer> open_run_tokenizer(const Checkpoint& checkpoint);

// Throws InputError if the checkpoint names another tokenizer. `tokenizer` may be null, and the
// checkpoint may name none: then nothing is compared.
void require_same_tokenizer(const Checkpoint& checkpoint, const data::Tokenizer* tokenizer,
                            std::string_view what);

}  // namespace muo::app
