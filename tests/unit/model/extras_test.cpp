#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/gpt.h"
#include "model/parameters.h"
#include "support/heap_arena.h"
#include "support/initial_values.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

// nanochat's extras as switches: what each extra adds and how it is initialised, and that it
// changes nothing else.
namespace muo::model {
namespace {

using test::HostTensor;
using testing::ElementsAre;

GptConfig small() {
  GptConfig c;
  c.vocab_size = 67;
  c.n_layer = 3;
  c.n_head = 4;
  c.n_kv_head = 2;
  c.n_embd = 24;
  c.seq_len = 9;
  return c;
}

std::vector<std::string> names_of(const GptConfig& config) {
  std::vector<std::string> out;
  for (const ParamSpec& spec : gpt_parameters(config))
    out.push_back(spec.name + " " + spec.shape.text());
  return out;
}

struct Extra {
  const char* name;
  bool GptConfig::*on;
  std::vector<std::string> adds;
  // Neutral values, with which the extra has no effect, by a part of the names of its parameters.
  std::map<std::string, float> neutral;
};

const std::vector<Extra>& extras() {
  static const std::vector<Extra> all = {
      {"ValueEmbeddings",
       &GptConfig::value_embeddings,
       {"value_embeds.0.weight (128, 12)", "transformer.h.0.attn.ve_gate.weight (2, 12)",
        "value_embeds.2.weight (128, 12)", "transformer.h.2.attn.ve_gate.weight (2, 12)"},
       {{"value_embeds", 0.0F}}},
      {"Smear",
       &GptConfig::smear,
       {"smear_gate.weight (1, 24)", "smear_lambda (1)"},
       {{"smear_lambda", 0.0F}}},
      {"Backout", &GptConfig::backout, {"backout_lambda (1)"}, {{"backout_lambda", 0.0F}}},
      {"ResidLambdas", &GptConfig::resid_lambdas, {"resid_lambdas (3)"}, {{"resid_lambdas", 1.0F}}},
      {"X0Lambdas", &GptConfig::x0_lambdas, {"x0_lambdas (3)"}, {{"x0_lambdas", 0.0F}}},
  };
  return all;
}

// A model with fixed random weights, and the results of one step.
struct Result {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> gradients;
};

Result run(const GptConfig& config, const std::map<std::string, float>& set) {
  test::KernelStream stream;
  test::HeapArena arena;
  std::vector<Tensor> weights;
  std::vector<Tensor> gradients;
  const std::vector<ParamSpec> specs = gpt_parameters(config);
  for (const ParamSpec& spec : specs) {
    HostTensor weight = test::random_tensor(spec.shape, spec.name, 0.2F);
    for (const auto& [part, value] : set)
      if (spec.name.find(part) != std::string::npos)
        std::fill(weight.values().begin(), weight.values().end(), value);
    weights.push_back(arena.keep(std::move(weight)));
    gradients.push_back(arena.keep(HostTensor(spec.shape)));
  }
  constexpr std::int64_t kBatch = 2;
  const std::int64_t n = kBatch * config.seq_len;
  const HostTensor tokens = test::random_tokens(n, 67, "tokens");
  const HostTensor targets = test::random_tokens(n, 67, "targets");
  const RotaryTables rotary = make_rotary_tables(config, config.seq_len, arena);
  fill_rotary_tables(stream, config, rotary);
  const Gpt gpt(config, {.b = kBatch, .t = config.seq_len, .backward = true}, rotary, "", arena);
  const Shape batch{kBatch, config.seq_len};
  gpt.forward(stream, {weights}, tokens.tensor().view(batch));
  gpt.losses_and_backward(stream, {weights}, tokens.tensor().view(batch),
                          targets.tensor().view(batch), HostTensor({1}, std::vector{1.0F}),
                          {.gradients = gradients, .accumulate = false, .ready = {}});
  Result result;
  const Tensor losses = gpt.row_losses();
  result.losses.assign(losses.as<float>(), losses.as<float>() + n);
  for (std::size_t i = 0; i < specs.size(); ++i)
    result.gradients[specs[i].name].assign(gradients[i].as<float>(),
                                           gradients[i].as<float>() + gradients[i].numel());
  return result;
}

TEST(Extras, EachAddsOnlyItsParameters) {
  for (const Extra& extra : extras()) {
    GptConfig config = small();
    config.*extra.on = true;
    std::vector<std::string> added;
    const std::vector<std::string> plain = names_of(small());
    for (const std::string& name : names_of(config))
      if (std::find(plain.begin(), plain.end(), name) == plain.end()) added.push_back(name);
    EXPECT_EQ(added, extra.adds) << extra.name;
    EXPECT_EQ(names_of(config).size(), plain.size() + added.size()) << extra.name;
  }
}

TEST(Extras, WithNeutralWeightsEachLeavesLossAndOtherGradientsUnchanged) {
  const Result plain = run(small(), {});
  for (const Extra& extra : extras()) {
    GptConfig config = small();
    config.*extra.on = true;
    const Result on = run(config, extra.neutral);
    EXPECT_EQ(on.losses, plain.losses) << extra.name;
    for (const auto& [name, gradient] : plain.gradients)
      EXPECT_EQ(on.gradients.at(name), gradient) << extra.name << ": " << name;
  }
}

TEST(Extras, WithOtherWeightsEachChangesTheLossAndHasGradients) {
  const Result plain = run(small(), {});
  for (const Extra& extra : extras()) {
    GptConfig config = small();
    config.*extra.on = true;
    const Result on = run(config, {});
    EXPECT_NE(on.losses, plain.losses) << extra.name;
    for (const auto& [name, gradient] : on.gradients)
      EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }))
          << extra.name << ": " << name;
  }
}

TEST(Extras, TheStreamIsTheSameWithAndWithoutBackward) {
  GptConfig config = small();
  set_nanochat_extras(config);
  const Result trained = run(config, {});
  // A model for inference shares one stream among its blocks.
  test::KernelStream stream;
  test::HeapArena arena;
  std::vector<Tensor> weights;
  for (const ParamSpec& spec : gpt_parameters(config))
    weights.push_back(arena.keep(test::random_tensor(spec.shape, spec.name, 0.2F)));
  const Shape batch{2, config.seq_len};
  const HostTensor tokens = test::random_tokens(batch.numel(), 67, "tokens");
  const HostTensor targets = test::random_tokens(batch.numel(), 67, "targets");
  const RotaryTables rotary = make_rotary_tables(config, config.seq_len, arena);
  fill_rotary_tables(stream, config, rotary);
  const Gpt gpt(config, {.b = 2, .t = config.seq_len, .backward = false}, rotary, "", arena);
  gpt.forward(stream, {weights}, tokens.tensor().view(batch));
  gpt.losses(stream, {weights}, targets.tensor().view(batch));
  const float* losses = gpt.row_losses().as<float>();
  EXPECT_EQ(std::vector<float>(losses, losses + batch.numel()), trained.losses);
}

std::vector<float> initial(const GptConfig& config, const std::string& name) {
  for (const ParamSpec& spec : gpt_parameters(config))
    if (spec.name == name) return test::initial_values(spec, 42);
  return {};
}

TEST(ExtrasInit, ScalarsStartAsInNanochat) {
  GptConfig config = small();
  set_nanochat_extras(config);
  // docs/spec/model.md, "Initial weights": 1.15 - 0.10 i / (L - 1), 0.20 - 0.15 i / (L - 1).
  EXPECT_THAT(initial(config, "resid_lambdas"), ElementsAre(1.15F, 1.10F, 1.05F));
  EXPECT_THAT(initial(config, "x0_lambdas"), ElementsAre(0.20F, 0.125F, 0.05F));
  EXPECT_THAT(initial(config, "smear_lambda"), ElementsAre(0.0F));
  EXPECT_THAT(initial(config, "backout_lambda"), ElementsAre(0.2F));
  config.n_layer = 1;
  EXPECT_THAT(initial(config, "resid_lambdas"), ElementsAre(1.15F));
}

TEST(ExtrasInit, GatesAndValueEmbeddingsAreUniform) {
  GptConfig config = small();
  set_nanochat_extras(config);
  config.n_kv_head = config.n_head = 64;
  config.n_embd = 768;
  config.vocab_size = 4096;
  const auto check = [&](const std::string& name, double low, double high) {
    const std::vector<float> values = initial(config, name);
    const auto n = static_cast<double>(values.size());
    ASSERT_GT(n, 20) << name;
    double mean = 0;
    for (const float v : values) {
      EXPECT_GE(static_cast<double>(v), low * (1 + 1e-6)) << name;
      EXPECT_LE(static_cast<double>(v), high * (1 + 1e-6)) << name;
      mean += static_cast<double>(v) / n;
    }
    // Six standard deviations of the mean of n uniform values.
    EXPECT_NEAR(mean, (low + high) / 2, 6 * (high - low) / std::sqrt(12 * n)) << name;
    EXPECT_GT(*std::max_element(values.begin(), values.end()) -
                  *std::min_element(values.begin(), values.end()),
              0.7 * (high - low))
        << name;
  };
  const double bound = std::sqrt(3.0 / 768.0);
  check("transformer.h.2.attn.ve_gate.weight", 0, 0.02);
  check("smear_gate.weight", 0, 0.02);
  check("value_embeds.0.weight", -bound, bound);
}

}  // namespace
}  // namespace muo::model
