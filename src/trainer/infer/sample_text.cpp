#include "trainer/infer/sample_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "base/philox.h"
#include "trainer/infer/draw_token.h"

namespace muo::trainer {
namespace {

// Assigns samples to the rows of a decoder and advances all rows together.
class Rows {
 public:
  Rows(graphs::Decoder& decoder, const model::GptConfig& config,
       std::span<const SampleRequest> requests, const SamplingOptions& options, std::int32_t bos,
       const SampleSink& sink)
      : decoder_(decoder),
        vocab_(static_cast<std::size_t>(config.vocab_size)),
        requests_(requests),
        options_(options),
        bos_(bos),
        sink_(sink),
        rows_(static_cast<std::size_t>(decoder.rows())),
        logits_(rows_.size() * vocab_) {}

  void run() {
    std::vector<std::int32_t> tokens(rows_.size());
    do {
      begin_rows();
      for (std::size_t i = 0; i < rows_.size(); ++i)
        tokens[i] = next_token(i);
      decoder_.step(tokens, logits_);
    } while (next_ < requests_.size() || std::ranges::any_of(rows_, &Row::busy));
  }

 private:
  struct Row {
    std::optional<std::size_t> request = {};
    std::int64_t drawn = 0;  // tokens
    [[nodiscard]] bool busy() const { return request.has_value(); }
  };
  [[nodiscard]] std::span<float> logits(std::size_t row) {
    return std::span(logits_).subspan(row * vocab_, vocab_);
  }

  // Assigns waiting requests to free rows.
  void begin_rows() {
    std::optional<std::size_t> last;  // the row started last in this call
    for (std::size_t i = 0; i < rows_.size() && next_ < requests_.size(); ++i) {
      if (rows_[i].busy()) continue;
      const SampleRequest& request = requests_[next_];
      if (last && requests_[*rows_[*last].request].context == request.context) {
        decoder_.copy_row(static_cast<std::int64_t>(*last), static_cast<std::int64_t>(i));
        std::ranges::copy(logits(*last), logits(i).begin());
      } else {
        decoder_.begin(static_cast<std::int64_t>(i), request.context, logits(i));
      }
      rows_[i] = {.request = next_++};
      last = i;
    }
  }

  // Draws the row's next token. Returns kNoToken if the row is free or its sample ends.
  std::int32_t next_token(std::size_t i) {
    Row& row = rows_[i];
    if (!row.busy()) return graphs::Decoder::kNoToken;
    const std::size_t index = *row.request;
    const CounterRandom random(requests_[index].seed, "sample");
    const std::int32_t token =
        draw_token(logits(i), options_,
                   static_cast<double>(random.uniform(static_cast<std::uint64_t>(row.drawn))));
    const bool is_continuation =
        token != bos_ && sink_.take(index, token) && ++row.drawn < options_.max_tokens;
    if (is_continuation) return token;
    row.request.reset();
    sink_.ended(index);
    return graphs::Decoder::kNoToken;
  }

  graphs::Decoder& decoder_;
  std::size_t vocab_;
  std::span<const SampleRequest> requests_;
  const SamplingOptions& options_;
  std::int32_t bos_;
  const SampleSink& sink_;
  std::vector<Row> rows_;
  std::vector<float> logits_;  // (rows, vocab)
  std::size_t next_ = 0;       // next waiting request
};

}  // namespace

void sample_tokens(graphs::Decoder& decoder, const model::GptConfig& config,
                   std::span<const SampleRequest> requests, const SamplingOptions& options,
                   std::int32_t bos, const SampleSink& sink) {
  if (!requests.empty()) Rows(decoder, config, requests, options, bos, sink).run();
}

std::vector<std::int32_t> context_of(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> out = {data::need_bos(tokenizer, "the tokenizer")};
  const std::vector<std::int32_t> text = data::encode_special(tokenizer, prompt);
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

SampleStream::SampleStream(const data::Tokenizer& tokenizer, std::span<const std::int32_t> context,
                           std::span<const std::string> stops)
    : decoder_(tokenizer.text_decoder()), text_(stops) {
  for (const std::int32_t token : context)
    decoder_->add(token);
}

std::string SampleStream::finish() {
  std::string text = text_.add(decoder_->finish());
  return text + text_.finish();
}

std::string sample_text(graphs::Decoder& decoder, const model::GptConfig& config,
                        const data::Tokenizer& tokenizer, const std::string& prompt,
                        const SamplingOptions& options) {
  std::string text;
  const SampleRequest request{context_of(tokenizer, prompt), options.seed};
  SampleStream stream(tokenizer, request.context, options.stops);
  sample_tokens(decoder, config, std::span(&request, 1), options,
                data::need_bos(tokenizer, "the tokenizer"),
                {.take =
                     [&](std::size_t, std::int32_t token) {
                       text += stream.add(token);
                       return !stream.stopped();
                     },
                 .ended = [&](std::size_t) { text += stream.finish(); }});
  return text;
}

std::string next_logits_json(graphs::Decoder& decoder, const model::GptConfig& config,
                             const std::vector<std::int32_t>& context, std::int64_t count) {
  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
  decoder.begin(0, context, logits);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return logits[i]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  nlohmann::json pairs = nlohmann::json::array();
  for (const std::size_t i : order)
    pairs.push_back({i, logits[i]});
  const auto read = std::min(context.size(), static_cast<std::size_t>(config.seq_len));
  return nlohmann::json{
      {"context", std::vector(context.end() - static_cast<std::ptrdiff_t>(read), context.end())},
      {"logits", pairs}}
      .dump();
}

}  // namespace muo::trainer
