#pragma once

#include <string_view>

#include "data/tokenizer/bpe_tokenizer.h"

namespace muo::data {

// Reads ranks of tiktoken: one line per token with its bytes in base64, a space and its rank,
// which is its id. The file defines neither pattern nor special tokens. Those of GPT-2
// (r50k_base, p50k_base), GPT-4 (cl100k_base) and GPT-4o (o200k_base) are recognised by the
// number of ranks; for other files, `pattern`, as in read_split(), and `special` define them.
// Throws InputError, with the line, if the file is malformed, and if there is no `pattern` and
// the number of ranks is unknown.
BpeDefinition read_tiktoken_file(std::string_view text, std::string_view source,
                                 std::string_view pattern = {},
                                 const std::vector<SpecialToken>& special = {});

}  // namespace muo::data
