#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graphs/decoder.h"

namespace muo {

struct SamplingOptions {
  std::int64_t max_tokens = 256;
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 0;    // 0: all tokens
  std::uint64_t seed = 42;
};

// Continues `prompt` (at least one token), token by token; `emit` sees each as it is drawn. Token i
// depends on the weights, the prompt, the options and i only. Contexts longer than the model's keep
// their end. Stops early after `stop_token`, which is not emitted.
void sample_tokens(Decoder& decoder, const GptConfig& config, std::vector<std::int32_t> prompt,
                   const SamplingOptions& options, std::int32_t stop_token,
                   const std::function<void(std::int32_t)>& emit);

// Byte tokenizer: the text that continues `prompt`, which is put behind a begin-of-sequence token.
std::string sample_text(Decoder& decoder, const GptConfig& config, const std::string& prompt,
                        const SamplingOptions& options);

// The index drawn from `logits` by a uniform number u in [0, 1).
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& options, float u);

}  // namespace muo
