#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "support/golden_model.h"
#include "support/tolerance.h"

namespace muo {
namespace {

using test::GoldenModel;

// Mistakes that the golden files must detect. Each mutation of the configuration or of the weights
// moves the logits by at least a hundred times the bound of gpt_golden_test.cpp.
struct Mutation {
  const char* name;
  const char* golden;
  void (*config)(model::GptConfig&) = [](model::GptConfig&) {};
  void (*weights)(GoldenModel&) = [](GoldenModel&) {};
  friend std::ostream& operator<<(std::ostream& out, const Mutation& m) { return out << m.name; }
};

class GptMutation : public testing::TestWithParam<Mutation> {};

TEST_P(GptMutation, IsSeenByTheGolden) {
  GoldenModel model(GetParam().golden, GetParam().config);
  GetParam().weights(model);
  const model::Gpt gpt = model.make_gpt(false);
  model.evaluate(gpt);
  EXPECT_GT(test::relative_error(model.logits(gpt), model.golden().doubles("logits")), 1e-3);
}

constexpr auto kName = [](const auto& instance) { return std::string(instance.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Plain, GptMutation,
    testing::Values(
        Mutation{"AllWindowsLong", "gpt_window",
                 [](model::GptConfig& c) { c.window_pattern = "L"; }},
        Mutation{"NoQkScale", "gpt_softcap", [](model::GptConfig& c) { c.qk_scale = 1; }},
        Mutation{"NoSoftCap", "gpt_softcap", [](model::GptConfig& c) { c.softcap = 0; }},
        Mutation{"OtherRotaryBase", "gpt_plain", [](model::GptConfig& c) { c.rope_base = 10000; }}),
    kName);

// Multiplies the first `count` elements.
void scale(test::HostTensor& tensor, float factor, std::size_t count = SIZE_MAX) {
  const std::span<float> values = tensor.values();
  for (float& v : values.first(std::min(count, values.size())))
    v *= factor;
}

INSTANTIATE_TEST_SUITE_P(
    Nanochat, GptMutation,
    testing::Values(
        Mutation{"AllWindowsLong", "nanochat_window",
                 [](model::GptConfig& c) { c.window_pattern = "L"; }},
        Mutation{"OneWindowLong", "nanochat_window",
                 [](model::GptConfig& c) { c.window_pattern = "SLSS"; }},
        Mutation{"NextSmallerWindow", "nanochat_window",
                 [](model::GptConfig& c) { c.seq_len = 512; }},
        Mutation{"NoQkScale", "nanochat_odd", [](model::GptConfig& c) { c.qk_scale = 1; }},
        Mutation{"OtherQkScale", "nanochat_odd", [](model::GptConfig& c) { c.qk_scale = 1.19F; }},
        Mutation{"OtherRotaryBase", "nanochat_odd",
                 [](model::GptConfig& c) { c.rope_base = 90000; }},
        Mutation{"OtherSoftCap", "nanochat_odd", [](model::GptConfig& c) { c.softcap = 16; }},
        Mutation{"NoValueEmbeddings", "nanochat_odd",
                 [](model::GptConfig& c) { c.value_embeddings = false; }},
        Mutation{"NoSmear", "nanochat_odd", [](model::GptConfig& c) { c.smear = false; }},
        Mutation{"NoBackout", "nanochat_odd", [](model::GptConfig& c) { c.backout = false; }},
        Mutation{"NoResidLambdas", "nanochat_odd",
                 [](model::GptConfig& c) { c.resid_lambdas = false; }},
        Mutation{"NoX0Lambdas", "nanochat_odd", [](model::GptConfig& c) { c.x0_lambdas = false; }},
        // The norm of the embedding cancels any factor, except for its epsilon.
        Mutation{.name = "OtherNormEpsilon",
                 .golden = "nanochat_odd",
                 .weights = [](GoldenModel& m) { scale(m.weight("transformer.wte.weight"), 2); }},
        Mutation{.name = "BackoutAdds",
                 .golden = "nanochat_odd",
                 .weights = [](GoldenModel& m) { scale(m.weight("backout_lambda"), -1); }},
        Mutation{.name = "SmearSubtracts",
                 .golden = "nanochat_odd",
                 .weights = [](GoldenModel& m) { scale(m.weight("smear_lambda"), -1); }},
        Mutation{.name = "SmearIgnoresItsGate",
                 .golden = "nanochat_odd",
                 .weights = [](GoldenModel& m) { scale(m.weight("smear_gate.weight"), 0); }},
        Mutation{
            .name = "ResidLambdasInAnotherOrder",
            .golden = "nanochat_odd",
            .weights =
                [](GoldenModel& m) { std::ranges::reverse(m.weight("resid_lambdas").values()); }},
        Mutation{.name = "X0LambdasInAnotherOrder",
                 .golden = "nanochat_odd",
                 .weights =
                     [](GoldenModel& m) { std::ranges::reverse(m.weight("x0_lambdas").values()); }},
        Mutation{.name = "GateOfOneHeadOnly",
                 .golden = "nanochat_odd",
                 .weights =
                     [](GoldenModel& m) {
                       scale(m.weight("transformer.h.2.attn.ve_gate.weight"), 0,
                             model::kValueGateChannels);
                     }},
        // Heads 0 and 1 read the keys of heads 2 and 3, and vice versa.
        Mutation{.name = "OtherKeyValueHeads",
                 .golden = "nanochat_odd",
                 .weights =
                     [](GoldenModel& m) {
                       const std::span<float> keys =
                           m.weight("transformer.h.0.attn.c_k.weight").values();
                       std::rotate(keys.begin(), keys.begin() + std::ssize(keys) / 2, keys.end());
                     }}),
    kName);

}  // namespace
}  // namespace muo
