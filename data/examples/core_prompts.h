#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/examples/core_bundle.h"
#include "data/examples/token_task.h"
#include "data/tokenizer.h"

namespace muo::data {

// Returns the indices of the few-shot examples that precede item `index`, as nanochat's
// evaluate_example() draws them: task.shots of the other items, by random.Random(1234 + index).
std::vector<std::size_t> core_shots(const CoreTask& task, std::size_t index);

// Returns the prompts of an item, byte for byte equal to those of nanochat's templates: one
// per choice or context; for language_modeling, first the prompt without the continuation,
// then the prompt with it.
std::vector<std::string> core_prompts(const CoreTask& task, std::size_t index);

// Tokenizes all items on `threads` threads, each prompt preceded by `bos`. As in nanochat, the
// scored part is, for multiple_choice, what follows the common prefix of all prompts; for schema,
// the common suffix of all prompts; for language_modeling, what follows the tokens of the prompt
// without the continuation. If these tokens are not a prefix of the prompt with the continuation
// (where nanochat stops), the scored part is what follows the common prefix of the two.
TokenTask tokenize_core(const CoreTask& task, const Tokenizer& tokenizer, std::int32_t bos,
                        std::int64_t row_tokens, int threads);

}  // namespace muo::data
