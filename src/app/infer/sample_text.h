#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/infer/text_stream.h"
#include "app/options/options.h"
#include "data/tokenizer.h"
#include "graphs/decoder.h"

namespace muo::app {

// One sample that is wanted, of tokens.
struct SampleRequest {
  std::vector<std::int32_t> context;  // what it continues, one token at least
  std::uint64_t seed = 0;
};
// What becomes of the samples, told by their indices, each in its order but among others'.
struct SampleSink {
  std::function<bool(std::size_t, std::int32_t token)> take;  // false: the sample ends
  std::function<void(std::size_t)> ended;
};

// Draws options.max_tokens tokens for each request, as many at once as the decoder has rows. Token
// i depends on the weights, the context, the seed, the options and i only; on a GPU also on how
// many rows the decoder has. `bos` ends a sample early, and is not told. Requests with one context
// that follow each other share its pass. A context that is too long is dealt with as the decoder
// says.
void sample_tokens(graphs::Decoder& decoder, const model::GptConfig& config,
                   std::span<const SampleRequest> requests, const SamplingOptions& options,
                   std::int32_t bos, const SampleSink& sink);

// The tokens of a document that begins with `prompt`, in which the texts of special tokens are
// these. Throws InputError if the tokenizer has none that starts documents.
std::vector<std::int32_t> context_of(const data::Tokenizer& tokenizer, const std::string& prompt);

// A sample's text as it grows: what follows the text of its context, as TextStream gives it.
class SampleStream {
 public:
  // The tokenizer has to outlive it.
  SampleStream(const data::Tokenizer& tokenizer, std::span<const std::int32_t> context,
               std::span<const std::string> stops);
  std::string add(std::int32_t token) { return text_.add(decoder_->add(token)); }
  [[nodiscard]] bool stopped() const { return text_.stopped(); }
  std::string finish();

 private:
  std::unique_ptr<data::TextDecoder> decoder_;
  TextStream text_;
};

// The text that continues `prompt`.
std::string sample_text(graphs::Decoder& decoder, const model::GptConfig& config,
                        const data::Tokenizer& tokenizer, const std::string& prompt,
                        const SamplingOptions& options);

// The `most` largest logits of the token behind `context`, after the soft-cap, as JSON:
// {"context": [tokens that were read], "logits": [[token, logit], ...]}, the largest first.
std::string next_logits_json(graphs::Decoder& decoder, const model::GptConfig& config,
                             const std::vector<std::int32_t>& context, std::int64_t most);

}  // namespace muo::app
