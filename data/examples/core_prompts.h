#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/examples/core_bundle.h"
#include "data/examples/token_task.h"
#include "data/tokenizer.h"

namespace muo::data {

// The solved examples that item `index` has before it, as nanochat's evaluate_example() draws them:
// task.shots of the other items, by random.Random(1234 + index).
std::vector<std::size_t> core_shots(const CoreTask& task, std::size_t index);

// What nanochat's templates make of an item, byte for byte: a prompt for each choice or context; of
// language_modeling the one without and the one with the continuation.
std::vector<std::string> core_prompts(const CoreTask& task, std::size_t index);

// All items as tokens, by several threads. Each prompt is behind `bos`. Scored is, as in nanochat,
// of multiple_choice what follows the tokens that all prompts begin with, of schema the tokens that
// all end with, of language_modeling what follows the tokens of the prompt without the
// continuation. Where those are not the first of the prompt with it (nanochat stops there), it is
// what follows those that they have in common.
TokenTask tokenize_core(const CoreTask& task, const Tokenizer& tokenizer, std::int32_t bos,
                        std::int64_t row_tokens, int threads);

}  // namespace muo::data
