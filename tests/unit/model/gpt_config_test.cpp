#include "model/gpt_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "model/parameters.h"
#include "support/errors.h"
#include "support/initial_values.h"

namespace muo::model {
namespace {

GptConfig depth_12() {
  GptConfig c;
  c.vocab_size = 32768;
  c.n_layer = 12;
  c.n_head = c.n_kv_head = 6;
  c.n_embd = 768;
  c.seq_len = 2048;
  c.window_pattern = "SSSL";
  return c;
}

TEST(GptConfig, ShortWindowIsAQuarterRoundedUpToTilesAndTheLastLayerIsLong) {
  const GptConfig c = depth_12();
  EXPECT_EQ(c.window(0), 512);
  EXPECT_EQ(c.window(3), 2048);
  EXPECT_EQ(c.window(11), 2048);
  GptConfig odd = c;
  odd.seq_len = 600;  // 150 -> 256
  odd.window_pattern = "S";
  EXPECT_EQ(odd.window(0), 256);
  EXPECT_EQ(odd.window(11), 600);
}

// nanochat's d12 at these sizes: the table of its scaling rules, without value
// embeddings and gates.
TEST(GptConfig, CountsParametersAndFlopsAsNanochatDoes) {
  const GptConfig c = depth_12();
  std::int64_t matrices = 0;
  for (const ParamSpec& spec : gpt_parameters(c))
    if (spec.role == ParamRole::kMatrix) matrices += spec.shape.numel();
  EXPECT_EQ(matrices, 84'934'656);
  // 759,696,048 minus 6 per weight of the gates of value embeddings (6 layers of 6 x 12)
  // and of smear (24).
  EXPECT_EQ(flops_per_token(c), 759'696'048.0 - 6.0 * (6 * 6 * 12 + 24));
}

TEST(GptConfig, CausalFlopsCountVisiblePairs) {
  for (const std::int64_t length : {2, 5, 600}) {
    GptConfig c = depth_12();
    c.seq_len = length;
    std::int64_t pairs = 0;
    for (std::int64_t layer = 0; layer < c.n_layer; ++layer)
      for (std::int64_t query = 0; query < length; ++query)
        for (std::int64_t key = 0; key <= query; ++key)
          pairs += query - key <= c.window(layer) ? 1 : 0;
    // Two products of n_embd multiply-adds in the forward pass, twice as many in the backward pass.
    const double attention = 12.0 * 768 * static_cast<double>(pairs) / static_cast<double>(length);
    const double linear = flops_per_token(c) - attention_flops_per_token(c);
    EXPECT_DOUBLE_EQ(causal_flops_per_token(c), linear + attention) << length;
  }
}

TEST(GptConfig, ParametersAreInForwardOrderAndReadyInReverse) {
  GptConfig c = depth_12();
  c.n_kv_head = 2;
  const std::vector<ParamSpec> specs = gpt_parameters(c);
  const GptParams params = index_parameters(c);
  EXPECT_EQ(specs.size(), 2U + 6U * 12U);
  EXPECT_EQ(specs[params.wte].name, "transformer.wte.weight");
  EXPECT_EQ(specs[params.blocks[3].c_k].name, "transformer.h.3.attn.c_k.weight");
  EXPECT_EQ(specs[params.blocks[3].c_k].shape, (Shape{256, 768}));
  EXPECT_EQ(specs[params.blocks[11].mlp_proj].shape, (Shape{768, 3072}));
  EXPECT_EQ(specs[params.lm_head].ready, 0);
  for (std::size_t i = 1; i < specs.size(); ++i) {
    EXPECT_GT(specs[i].use, specs[i - 1].use);
    EXPECT_LT(specs[i].ready, specs[i - 1].ready);
  }
}

TEST(GptConfig, ImpossibleSizesAreRefusedWithAFeasibleOne) {
  const auto message = [](auto&& change) {
    GptConfig c = depth_12();
    change(c);
    try {
      check_config(c);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::HasSubstr;
  EXPECT_EQ(message([](GptConfig&) {}), "");
  EXPECT_THAT(message([](GptConfig& c) { c.n_head = 5; }), HasSubstr("--n-embd 770"));
  EXPECT_THAT(message([](GptConfig& c) { c.n_kv_head = 4; }), HasSubstr("divisor of 6"));
  EXPECT_THAT(message([](GptConfig& c) { c.n_head = c.n_kv_head = 256; }), HasSubstr("odd"));
  EXPECT_THAT(message([](GptConfig& c) { c.n_head = c.n_kv_head = 2; }), HasSubstr("over 256"));
  EXPECT_THAT(message([](GptConfig& c) { c.n_layer = 0; }), HasSubstr("--n-layer is 0"));
  EXPECT_THAT(message([](GptConfig& c) { c.n_embd = -768; }), HasSubstr("--n-embd is -768"));
  EXPECT_THAT(message([](GptConfig& c) { c.seq_len = 1; }), HasSubstr("--max-seq-len is 1"));
  EXPECT_THAT(message([](GptConfig& c) { c.seq_len = std::int64_t{1} << 40; }),
              HasSubstr("--max-seq-len"));
  EXPECT_THAT(message([](GptConfig& c) { c.window_pattern = "SX"; }), HasSubstr("'SX'"));
  EXPECT_THAT(message([](GptConfig& c) { c.softcap = -1; }), HasSubstr("--softcap"));
  const auto with_heads = [](std::int64_t heads) {
    return [=](GptConfig& c) {
      c.value_embeddings = true;
      c.n_embd = 4 * heads;
      c.n_head = c.n_kv_head = heads;
    };
  };
  EXPECT_NO_THROW(check_pass(2047, 1 << 20));
  EXPECT_THAT(test::message_of<InputError>([] { check_pass(2048, 1 << 20); }),
              HasSubstr("--device-batch-size 2048: rows of 1048576 tokens (--max-seq-len) exceed "
                        "2^31 tokens: give --device-batch-size 2047 or less"));
  EXPECT_EQ(message(with_heads(341)), "");
  EXPECT_THAT(message(with_heads(342)), HasSubstr("--n-kv-head 342: value embeddings"));
  EXPECT_THAT(message(with_heads(342)), HasSubstr("give --n-kv-head 171, or"));
}

// Mean and deviation of `count` draws; both have an error of about 1 / sqrt(count).
struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments(const std::vector<float>& values) {
  Moments m;
  double squares = 0;
  for (const float v : values) {
    m.mean += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  const auto n = static_cast<double>(values.size());
  m.mean /= n;
  m.deviation = std::sqrt(squares / n - m.mean * m.mean);
  return m;
}

TEST(Init, DistributionsAreNanochats) {
  const GptConfig c = depth_12();
  const double bound = std::sqrt(3.0 / 768.0);
  for (const ParamSpec& spec : gpt_parameters(c)) {
    if (spec.name.find(".h.") != std::string::npos && spec.name.find(".h.0.") == std::string::npos)
      continue;
    const Moments m = moments(test::initial_values(spec, 42, 0, 200'000));
    double deviation = bound / std::sqrt(3.0);
    double largest = bound;
    if (spec.role == ParamRole::kEmbedding) deviation = 0.8;
    if (spec.role == ParamRole::kUnembedding) deviation = 0.001;
    // Bound for 200,000 normal values.
    if (spec.role != ParamRole::kMatrix) largest = 6.5 * deviation;
    if (spec.name.find("c_fc") != std::string::npos) {
      deviation *= 0.4;
      largest *= 0.4;
    }
    if (spec.name.find("c_proj") != std::string::npos) deviation = largest = 0;
    const double six_sigma = 6.0 / std::sqrt(200'000.0);
    EXPECT_NEAR(m.mean, 0, six_sigma * deviation) << spec.name;
    EXPECT_NEAR(m.deviation, deviation, six_sigma * deviation) << spec.name;
    EXPECT_LE(m.largest, largest * (1 + 1e-6)) << spec.name;
  }
}

}  // namespace
}  // namespace muo::model
