#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "graphs/decoder.h"
#include "trainer/infer/text_stream.h"
#include "trainer/options/options.h"

namespace muo::trainer {

// A request for one sample.
struct SampleRequest {
  std::vector<std::int32_t> context;  // the tokens to continue, at least one
  std::uint64_t seed = 0;
};
// Callbacks, called with a sample's index. Calls for different samples interleave; calls for one
// sample are in order.
struct SampleSink {
  std::function<bool(std::size_t, std::int32_t token)> take;  // returns false to end the sample
  std::function<void(std::size_t)> ended;
};

// Draws options.max_tokens tokens for each request, decoding as many requests at once as the
// decoder has rows. Token i depends only on the weights, the context, the seed, the options and i,
// and on a GPU also on the decoder's number of rows. `bos` ends a sample early and is not passed to
// `take`. Consecutive requests with the same context share one pass over it. The decoder truncates
// contexts that are too long.
void sample_tokens(graphs::Decoder& decoder, const model::GptConfig& config,
                   std::span<const SampleRequest> requests, const SamplingOptions& options,
                   std::int32_t bos, const SampleSink& sink);

// Returns the tokens of a document that begins with `prompt`, where the texts of special tokens
// become these tokens. Throws InputError if the tokenizer has no token that starts documents.
std::vector<std::int32_t> context_of(const data::Tokenizer& tokenizer, const std::string& prompt);

// The text that continues a context, produced incrementally by a TextStream.
class SampleStream {
 public:
  // The tokenizer must outlive this object.
  SampleStream(const data::Tokenizer& tokenizer, std::span<const std::int32_t> context,
               std::span<const std::string> stops);
  std::string add(std::int32_t token) { return text_.add(decoder_->add(token)); }
  [[nodiscard]] bool stopped() const { return text_.stopped(); }
  std::string finish();

 private:
  std::unique_ptr<data::TextDecoder> decoder_;
  TextStream text_;
};

// Returns the text that continues `prompt`.
std::string sample_text(graphs::Decoder& decoder, const model::GptConfig& config,
                        const data::Tokenizer& tokenizer, const std::string& prompt,
                        const SamplingOptions& options);

// Returns the `count` largest logits of the token after `context`, after the soft-cap, as JSON:
// {"context": [the tokens read], "logits": [[token, logit], ...]}, the largest first.
std::string next_logits_json(graphs::Decoder& decoder, const model::GptConfig& config,
                             const std::vector<std::int32_t>& context, std::int64_t count);

}  // namespace muo::trainer
