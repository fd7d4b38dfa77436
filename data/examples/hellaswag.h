#pragma once

#include <cstdint>
#include <filesystem>

#include "data/examples/token_task.h"
#include "data/tokenizer.h"

namespace muo::data {

// The format of llm.c's evaluation files: 256 little-endian int32 (magic, version, number of
// examples, bytes of the longest one), followed by each example in uint16: 65535, its number of
// bytes, its index, the index of the right completion, the number of completions, and the tokens of
// the context and of each completion, each preceded by their number.
inline constexpr std::int32_t kEvalFileMagic = 20240522;
inline constexpr std::int32_t kEvalFileVersion = 1;

// Whether the file starts with that magic number.
bool looks_like_eval_file(const std::filesystem::path& path);

struct HellaSwagOptions {
  std::int64_t row_tokens = 0;    // see TokenTask::add
  std::int64_t vocab_size = 0;    // upper bound of the ids in an evaluation file
  std::int64_t max_examples = 0;  // how many examples to read, from the first on; 0: all
};

// Reads the examples of an evaluation file.
TokenTask read_eval_file(const std::filesystem::path& path, const HellaSwagOptions& options);
// Reads HellaSwag's JSON Lines ("ctx", "endings", "label") and tokenizes them as llm.c's
// dev/data/hellaswag.py does: the tokens of the context, followed by those of a space and the
// ending, without a start-of-document token.
TokenTask read_hellaswag(const std::filesystem::path& path, const Tokenizer& tokenizer,
                         const HellaSwagOptions& options);

}  // namespace muo::data
