#include "trainer/checkpoint/model_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "base/check.h"
#include "support/checkpoint_state.h"
#include "support/errors.h"
#include "support/files.h"
#include "trainer/run/run_config.h"

namespace muo::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

RunConfig nanochat_run(DType dtype) {
  TrainOptions options;
  options.model.depth = 2;
  options.devices.count = 1;
  options.numbers.dtype = dtype;
  data::Corpus corpus;
  corpus.vocab_size = data::kByteVocab;
  return resolve(options, corpus);
}

// The model of a checkpoint with this configuration in its manifest.
model::GptConfig model_of(const json& config) {
  const test::TemporaryDirectory run;
  CheckpointSaver saver(run.path(), 1);
  test::save_state(saver, 1, {.step = 1, .config = config.dump()}, 1);
  return checkpoint_model(Checkpoint(run.path()));
}

json config_of(const RunConfig& run) {
  return json::parse(checkpoint_config(run.model, run.resolved()));
}

TEST(ModelJson, HoldsTheWholeModel) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const RunConfig run = nanochat_run(dtype);
    const model::GptConfig read = model_of(config_of(run));
    EXPECT_EQ(model_difference(read, run.model), "");
    EXPECT_EQ(read.dtype, dtype);
    EXPECT_TRUE(read.value_embeddings && read.smear && read.backout);
    EXPECT_TRUE(read.resid_lambdas && read.x0_lambdas);
    EXPECT_EQ(read.window_pattern, "SSSL");
    EXPECT_EQ(read.qk_scale, 1.2F);
  }
}

TEST(ModelJson, AManifestWithoutExtrasIsAPlainModel) {
  json config = config_of(nanochat_run(DType::kF32));
  for (const char* field :
       {"value_embeddings", "smear", "backout", "resid_lambdas", "x0_lambdas", "dtype"})
    ASSERT_EQ(config["model"].erase(field), 1U) << field;
  const model::GptConfig read = model_of(config);
  EXPECT_FALSE(read.value_embeddings || read.smear || read.backout);
  EXPECT_FALSE(read.resid_lambdas || read.x0_lambdas);
  EXPECT_EQ(read.dtype, DType::kF32);
  EXPECT_EQ(read.window_pattern, "SSSL");
}

TEST(ModelJson, RejectsMissingSizesAndWrongTypes) {
  const auto error = [](auto&& change) {
    json config = config_of(nanochat_run(DType::kF32));
    change(config["model"]);
    return test::message_of<InputError>([&] { model_of(config); });
  };
  EXPECT_THAT(error([](json& model) { model.erase("n_layer"); }), HasSubstr("no model.n_layer"));
  EXPECT_THAT(error([](json& model) { model["smear"] = 3; }), HasSubstr("model.smear is 3"));
  EXPECT_THAT(error([](json& model) { model["dtype"] = "fp8"; }), HasSubstr("model.dtype is"));
}

TEST(ModelJson, RejectsValuesThatNoOptionAccepts) {
  const auto error = [](const char* field, const json& value) {
    json config = config_of(nanochat_run(DType::kF32));
    config["model"][field] = value;
    return test::message_of<InputError>([&] { model_of(config); });
  };
  EXPECT_THAT(error("n_layer", 100'000),
              HasSubstr("manifest.json: n_layer: '100000' is out of range: give from 1 to 1024"));
  EXPECT_THAT(error("n_layer", 2.5), HasSubstr("model.n_layer is 2.5"));
  EXPECT_THAT(error("n_embd", 1 << 17), HasSubstr("n_embd: '131072' is out of range"));
  EXPECT_THAT(error("vocab_size", 1 << 25), HasSubstr("vocab_size: '33554432' is out of range"));
  EXPECT_THAT(error("seq_len", std::uint64_t{1} << 63U), HasSubstr("seq_len: '-"));
  EXPECT_THAT(error("qk_scale", 1e300), HasSubstr("qk_scale: 'inf' is out of range"));
  EXPECT_THAT(error("n_kv_head", 4), HasSubstr("manifest.json: --n-head 1 is not a multiple"));
  const CheckpointInfo newer{.config = R"({"options": "depth = 2\nnever-heard-of = 1\n"})"};
  EXPECT_THAT(test::message_of<InputError>([&] { checkpoint_options(newer, "manifest.json"); }),
              HasSubstr("manifest.json: unknown option 'never-heard-of'"));
}

TEST(ModelJson, DifferenceNamesEveryExtraButNotTheDtype) {
  const model::GptConfig plain;
  model::GptConfig other = plain;
  other.dtype = DType::kBF16;
  EXPECT_EQ(model_difference(plain, other), "");
  model::set_nanochat_extras(other);
  const std::string difference = model_difference(plain, other);
  for (const char* field : {"value_embeddings", "smear", "backout", "resid_lambdas", "x0_lambdas",
                            "window_pattern", "qk_scale"})
    EXPECT_THAT(difference, HasSubstr(field));
  EXPECT_THAT(difference, HasSubstr("smear false, not true"));
  EXPECT_THAT(difference, HasSubstr("qk_scale 1, not 1.2;"));
}

}  // namespace
}  // namespace muo::trainer
