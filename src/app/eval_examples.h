#pragma once

#include "app/checkpoint/checkpoint.h"
#include "app/options/options.h"
#include "model/gpt_config.h"

namespace muo::app {

// `muograph eval --hellaswag FILE --core DIR`: how many examples the checkpoint's model answers
// rightly; prints it. Throws InputError for what is wrong with the files, before any device work.
int evaluate_examples(const EvalOptions& options, const Checkpoint& checkpoint,
                      model::GptConfig config);

}  // namespace muo::app
