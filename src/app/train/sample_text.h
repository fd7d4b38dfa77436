#pragma once

#include <string>

#include "app/options/options.h"
#include "graphs/decoder.h"

namespace muo {

// The text that continues `prompt`, by the byte tokenizer: the prompt is put behind a
// begin-of-sequence token, and another one ends the text early. Token i depends on the weights, the
// prompt, the options and i only. Contexts longer than the model's keep their end.
std::string sample_text(Decoder& decoder, const GptConfig& config, const std::string& prompt,
                        const SamplingOptions& options);

// The `most` largest logits of the token behind such a prompt, after the soft-cap, as JSON:
// {"context": [tokens], "logits": [[token, logit], ...]}, the largest first.
std::string next_logits_json(Decoder& decoder, const GptConfig& config, const std::string& prompt,
                             std::int64_t most);

}  // namespace muo
