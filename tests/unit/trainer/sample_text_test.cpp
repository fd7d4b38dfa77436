#include "trainer/infer/sample_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "graphs/capture.h"
#include "support/paths.h"
#include "support/tensors.h"
#include "trainer/infer/draw_token.h"
#include "trainer/infer/inference.h"
#include "trainer/infer/text_stream.h"

namespace muo::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// Tokens 2, 0, 3 and 1 have probabilities 0.4, 0.3, 0.2 and 0.1.
const std::vector<float> kLogits = {std::log(3.0F), std::log(1.0F), std::log(4.0F), std::log(2.0F)};

// Returns all tokens that random numbers in [0, 1) draw.
std::set<std::int32_t> drawn(const SamplingOptions& options) {
  std::set<std::int32_t> out;
  for (int i = 0; i < 1000; ++i)
    out.insert(draw_token(kLogits, options, i / 1000.0));
  return out;
}

TEST(DrawToken, FiltersKeepTheDocumentedTokens) {
  const double t = 1;
  EXPECT_THAT(drawn({.temperature = t}), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn({.temperature = 0}), UnorderedElementsAre(2));
  EXPECT_THAT(drawn({.temperature = t, .top_k = 2}), UnorderedElementsAre(2, 0));
  EXPECT_THAT(drawn({.temperature = t, .top_k = 9}), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_THAT(drawn({.temperature = t, .top_p = 0}), UnorderedElementsAre(2));
  EXPECT_THAT(drawn({.temperature = t, .top_p = 0.39}), UnorderedElementsAre(2));
  EXPECT_THAT(drawn({.temperature = t, .top_p = 0.41}), UnorderedElementsAre(2, 0));
  EXPECT_THAT(drawn({.temperature = t, .top_p = 0.75}), UnorderedElementsAre(2, 0, 3));
  EXPECT_THAT(drawn({.temperature = t, .min_p = 0.3}), UnorderedElementsAre(2, 0, 3));
  EXPECT_THAT(drawn({.temperature = t, .min_p = 0.6}), UnorderedElementsAre(2, 0));
  EXPECT_THAT(drawn({.temperature = t, .min_p = 1}), UnorderedElementsAre(2));
  // The first token has 4/7 of the probability of the first two, which is enough.
  EXPECT_THAT(drawn({.temperature = t, .top_k = 2, .top_p = 0.55}), UnorderedElementsAre(2));
  // At temperature 1/2 the probabilities are 16/30, 9/30, 4/30 and 1/30.
  EXPECT_THAT(drawn({.temperature = 0.5, .top_p = 0.53}), UnorderedElementsAre(2));
}

TEST(DrawToken, DrawsByProbability) {
  std::map<std::int32_t, int> count;
  for (int i = 0; i < 1000; ++i)
    ++count[draw_token(kLogits, {.temperature = 1}, (i + 0.5) / 1000)];
  EXPECT_EQ(count, (std::map<std::int32_t, int>{{0, 300}, {1, 100}, {2, 400}, {3, 200}}));
  count.clear();
  for (int i = 0; i < 700; ++i)
    ++count[draw_token(kLogits, {.temperature = 1, .top_k = 2}, (i + 0.5) / 700)];
  EXPECT_EQ(count, (std::map<std::int32_t, int>{{0, 300}, {2, 400}}));
}

// Tokens are ranked in pieces, until top-p is reached.
TEST(DrawToken, ManyTokensAreRankedAsFarAsNeeded) {
  const test::HostTensor logits = test::random_tensor({5000}, "logits", 0.5F);
  std::vector<std::int32_t> order(5000);
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int32_t>(i);
  const auto at = [&](std::int32_t i) { return logits.values()[static_cast<std::size_t>(i)]; };
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) { return at(a) > at(b); });
  double total = 0;
  for (const float x : logits.values())
    total += std::exp(static_cast<double>(x));
  for (const double p : {0.01, 0.3, 0.9}) {
    double sum = 0;
    std::size_t kept = 0;
    while (sum < p * total)
      sum += std::exp(static_cast<double>(at(order[kept++])));
    // The largest random number draws the last of the kept tokens.
    EXPECT_EQ(draw_token(logits.values(), {.temperature = 1, .top_p = p}, 1 - 0x1p-53),
              order[kept - 1])
        << p;
  }
}

std::vector<std::string> shown(const std::vector<std::string>& stops,
                               const std::vector<std::string>& parts) {
  TextStream stream(stops);
  std::vector<std::string> out(parts.size());
  std::ranges::transform(parts, out.begin(),
                         [&](const std::string& part) { return stream.add(part); });
  out.push_back(stream.finish());
  return out;
}

// Without a prompt, a sample is a text of its own, without the space that the tokenizer puts before
// texts; after a prompt, a leading space belongs to the sample.
TEST(SampleStream, ContinuesTheTextOfItsContext) {
  const auto tokenizer = data::open_tokenizer(std::filesystem::path(test::source_directory()) /
                                              "tests/golden/sentencepiece/llama.model");
  const auto shown = [&](const std::string& prompt, const std::vector<std::string>& stops = {}) {
    SampleStream stream(*tokenizer, context_of(*tokenizer, prompt), stops);
    std::string text;
    for (const std::int32_t token : data::encode(*tokenizer, "the caf\u00E9 \U0001F600"))
      text += stream.add(token);
    return text + stream.finish();
  };
  EXPECT_EQ(shown(""), "the caf\u00E9 \U0001F600");
  EXPECT_EQ(shown("</s>"), "the caf\u00E9 \U0001F600");
  EXPECT_EQ(shown("At"), " the caf\u00E9 \U0001F600");
  EXPECT_EQ(shown("At", {"\u00E9"}), " the caf");
  SampleStream cut(*tokenizer, context_of(*tokenizer, "a"), {});
  EXPECT_EQ(cut.add(3 + 0xF0), "");  // a byte token that begins a character
  EXPECT_EQ(cut.finish(), "\uFFFD");
}

TEST(TextStream, ShowsWholeCharactersOnly) {
  EXPECT_THAT(shown({}, {"a", "\xC3", "\xA9", "b"}), ElementsAre("a", "", "\xC3\xA9", "b", ""));
  EXPECT_THAT(shown({}, {"\xF0\x9F", "\x98", "\x80!"}),
              ElementsAre("", "", "\xF0\x9F\x98\x80!", ""));
  EXPECT_THAT(shown({}, {"x\xE2\x82"}), ElementsAre("x", "\xE2\x82"))
      << "the text ends within a character";
  EXPECT_THAT(shown({}, {"\x80\x80\x80\x80", "\xFF", "a"}),
              ElementsAre("\x80\x80\x80\x80", "\xFF", "a", ""))
      << "not UTF-8";
}

TEST(TextStream, EndsBeforeTheFirstStopText) {
  EXPECT_THAT(shown({"END"}, {"some", "thE", "N", "D", "more"}),
              ElementsAre("some", "th", "", "", "", ""));
  EXPECT_THAT(shown({"END"}, {"E", "N", "E", "ND"}), ElementsAre("", "", "EN", "", ""));
  EXPECT_THAT(shown({"END"}, {"EN"}), ElementsAre("", "EN")) << "incomplete stop text";
  EXPECT_THAT(shown({"b", "ab"}, {"xab"}), ElementsAre("x", ""));
  EXPECT_THAT(shown({"\n\n"}, {"a\n", "b\n\nc"}), ElementsAre("a", "\nb", ""));
  EXPECT_THAT(shown({"\xC3\xA9"}, {"a\xC3", "\xA9"}), ElementsAre("a", "", ""));
}

constexpr std::int32_t kBos = 40;

struct Sampled {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<int> ended;
};

Sampled sample(std::int64_t rows, const std::vector<SampleRequest>& requests,
               const SamplingOptions& options) {
  model::GptConfig config;
  config.vocab_size = 41;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_kv_head = 1;
  config.n_embd = 32;
  config.seq_len = 16;  // shorter than the samples
  model::set_nanochat_extras(config);
  const std::vector<ParamSpec> params = model::gpt_parameters(config);
  Sampled out{std::vector<std::vector<std::int32_t>>(requests.size()),
              std::vector<int>(requests.size(), 0)};
  DeviceGroup group({.world = 1});
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, plan_inference_memory(config, params, {.sample = rows}, 0, 1));
    InferenceState state(rank, config, params, {.sample = rows}, arena);
    graphs::warm_up_and_capture(rank, arena, state);
    model::fill_rotary_tables(rank.compute, config, state.rotary);
    for (std::size_t i = 0; i < params.size(); ++i)
      rank.compute.copy(state.weights[i],
                        test::random_tensor(params[i].shape, params[i].name, 0.2F));
    rank.wait(rank.compute);
    sample_tokens(*state.decoder, config, requests, options, kBos,
                  {.take =
                       [&](std::size_t i, std::int32_t token) {
                         out.tokens[i].push_back(token);
                         return token != 7;  // as if 7 completed a stop text
                       },
                   .ended = [&](std::size_t i) { ++out.ended[i]; }});
  });
  return out;
}

std::vector<SampleRequest> some_requests() {
  std::vector<SampleRequest> out;
  for (const std::vector<std::int32_t>& context :
       {std::vector<std::int32_t>{kBos}, {kBos, 1, 2, 3}, {kBos, 9, 9, 30, 2, 5, 8, 1, 1, 4, 20}})
    for (const std::uint64_t seed : {1U, 2U, 3U})
      out.push_back({.context = context, .seed = seed});
  return out;
}

TEST(SampleTokens, DoNotDependOnOtherSamples) {
  const std::vector<SampleRequest> requests = some_requests();
  const SamplingOptions options{.max_tokens = 30, .temperature = 1.5, .top_p = 0.95};
  std::vector<std::vector<std::int32_t>> alone(requests.size());
  std::ranges::transform(requests, alone.begin(), [&](const SampleRequest& request) {
    return sample(1, {request}, options).tokens[0];
  });
  EXPECT_GT(std::set(alone.begin(), alone.end()).size(), 6U) << "seeds and contexts matter";
  for (const std::int64_t rows : {1, 2, 4, 9, 12}) {
    const Sampled got = sample(rows, requests, options);
    EXPECT_EQ(got.tokens, alone) << rows;
    EXPECT_EQ(got.ended, std::vector<int>(requests.size(), 1)) << rows;
  }
}

TEST(SampleTokens, EndWhenRequested) {
  const Sampled got = sample(3, some_requests(), {.max_tokens = 200, .temperature = 2});
  bool some_ended_by_bos = false;
  for (const std::vector<std::int32_t>& tokens : got.tokens) {
    EXPECT_EQ(std::ranges::count(tokens, kBos), 0)
        << "the token that ends a sample is not reported";
    const auto end = std::ranges::find(tokens, 7);
    EXPECT_TRUE(end == tokens.end() || end + 1 == tokens.end());
    EXPECT_LE(tokens.size(), 200U);
    some_ended_by_bos = some_ended_by_bos || (end == tokens.end() && tokens.size() < 200);
  }
  EXPECT_TRUE(some_ended_by_bos);
  for (const std::vector<std::int32_t>& tokens :
       sample(2, some_requests(), {.max_tokens = 1}).tokens)
    EXPECT_LE(tokens.size(), 1U);
}

TEST(ContextOf, StartsADocumentAndKnowsSpecialTokens) {
  const auto tokenizer = data::open_tokenizer("byte");
  EXPECT_THAT(context_of(*tokenizer, "a<|bos|>b"), ElementsAre(256, 97, 256, 98));
}

}  // namespace
}  // namespace muo::trainer
