#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizer.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {

// Returns the tokenizer of a checkpoint's model, as an argument of open_tokenizer(): the file
// beside the checkpoint or in its run directory (find_tokenizer_in()), else the one in its options.
// Empty if unknown, as for a model that was trained on shards without a tokenizer.
std::filesystem::path find_run_tokenizer(const Checkpoint& checkpoint);

// Opens that tokenizer; null if unknown. Throws InputError if its fingerprint differs from the
// checkpoint's.
std::shared_ptr<const data::Tokenizer> open_run_tokenizer(const Checkpoint& checkpoint);

// Throws InputError if the checkpoint was trained with another tokenizer. Does nothing if
// `tokenizer` is null, or if the checkpoint has no fingerprint. `what` begins the message.
void require_same_tokenizer(const Checkpoint& checkpoint, const data::Tokenizer* tokenizer,
                            std::string_view what);

}  // namespace muo::trainer
