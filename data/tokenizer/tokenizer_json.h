#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::data {

// Hugging Face's tokenizer.json, of byte-level BPE models: as a byte-level pre-tokenizer, or a
// sequence of splits before one, makes the pieces. Throws InputError, "SOURCE: where: what", for
// what is malformed, and for what would give other ids: normalizers, prefix spaces, dropout,
// affixes of subwords, added tokens that strip spaces. Post-processors, truncation and padding are
// left out: they add tokens around a text, not in it. Byte fallback is for characters that a
// vocabulary lacks, and one of bytes lacks none. Added tokens have the ids that `tokenizers` gives
// them, not those that the file does: the vocabulary's own, or the next after as many as it has
// tokens.
BpeDefinition read_tokenizer_json(std::string_view text, std::string_view source);

// What read_tokenizer_json and `tokenizers` read as `definition` again, if no text is that of two
// tokens.
std::string write_tokenizer_json(const BpeDefinition& definition);

// The tokenizer.json `text` with another post-processor: one that puts `bos` before each text.
std::string with_document_start(std::string_view text, const SpecialToken& bos);

}  // namespace muo::data
