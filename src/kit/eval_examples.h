#pragma once

#include "model/gpt_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/options/options.h"

namespace muo::kit {

// `muograph eval --hellaswag FILE --core DIR`: prints the share of examples that the checkpoint's
// model answers correctly. Throws InputError for invalid files, before any device work.
int evaluate_examples(const trainer::EvalOptions& options, const trainer::Checkpoint& checkpoint,
                      model::GptConfig config);

}  // namespace muo::kit
