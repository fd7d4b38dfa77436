#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo {

// Hugging Face's tokenizer.json, of byte-level BPE models: as a byte-level pre-tokenizer, or a
// sequence of splits before one, makes the pieces. Throws InputError, "SOURCE: where: what", for
// what is malformed, and for what would give other ids: normalizers, prefix spaces, byte fallback,
// dropout, affixes of subwords, added tokens that strip spaces. Post-processors, truncation and
// padding are left out: they add tokens around a text, not in it.
BpeDefinition read_tokenizer_json(std::string_view text, std::string_view source);

// What read_tokenizer_json reads as `definition` again.
std::string write_tokenizer_json(const BpeDefinition& definition);

}  // namespace muo
