#pragma once

#include <string_view>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::data {

// The ranks of tiktoken: a line per token, its bytes in base64, a space and its rank, which is its
// id. The file names neither pattern nor special tokens: those of GPT-2 (r50k_base, p50k_base),
// GPT-4 (cl100k_base) and GPT-4o (o200k_base) are known by the number of ranks. Throws InputError,
// with the line, for what is malformed, and for another number unless `pattern`, of read_split(),
// says how text is cut: then `special` are the special tokens.
BpeDefinition read_tiktoken_file(std::string_view text, std::string_view source,
                                 std::string_view pattern = {},
                                 const std::vector<SpecialToken>& special = {});

}  // namespace muo::data
