#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::data {

// Reads Hugging Face's tokenizer.json of a byte-level BPE, whose pieces come from a byte-level
// pre-tokenizer or from a sequence of splits before one. Throws InputError, "SOURCE: where: what",
// if the file is malformed, and for everything that would change the ids: normalizers other than
// NFC, prefix spaces, dropout, affixes of subwords, added tokens that strip spaces.
// Post-processors, truncation and padding are ignored, because they add tokens around a text, not
// in it. Byte fallback is ignored, because a vocabulary of bytes lacks no character. Added tokens
// have the ids that `tokenizers` assigns, not those in the file: those of the vocabulary, or
// consecutive ids from the vocabulary's size on.
BpeDefinition read_tokenizer_json(std::string_view text, std::string_view source);

// Returns a file that read_tokenizer_json and `tokenizers` read back as `definition`, provided that
// no two tokens have the same text.
std::string write_tokenizer_json(const BpeDefinition& definition);

// Replaces the post-processor of the tokenizer.json in `text` by one that puts `bos`
// before each text.
std::string with_document_start(std::string_view text, const SpecialToken& bos);

}  // namespace muo::data
