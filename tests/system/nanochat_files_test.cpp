#include "kit/export/nanochat_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/program.h"

// Runs `checkpoint import` and `checkpoint export` as a user does.
namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::HasSubstr;

constexpr std::int64_t kStep = 7;

struct Stored {
  trainer::SafetensorsSpec spec;
  std::string bytes;
};

class NanochatFiles : public testing::Test {
 protected:
  NanochatFiles() {
    model::set_nanochat_extras(model_);
    model_.vocab_size = 257;
    model_.n_layer = 3;
    model_.n_head = 4;
    model_.n_kv_head = 2;
    model_.n_embd = 32;
    model_.seq_len = 64;
    for (const ParamSpec& param : model::gpt_parameters(model_))
      tensors_[param.name] = fp32_tensor(param);
    write_meta(kit::nanochat_meta_text({.model = model_, .step = kStep}));
  }

  // Arbitrary values for a weight, including the smallest.
  static Stored fp32_tensor(const ParamSpec& param) {
    const CounterRandom random(3, param.name);
    std::string bytes;
    for (std::int64_t i = 0; i < param.shape.numel(); ++i) {
      const float value = i == 0   ? -0.0F
                          : i == 1 ? 1e-45F
                                   : 0.2F * random.normal(static_cast<std::uint64_t>(i));
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return {.spec = {.name = param.name, .dtype = DType::kF32, .shape = param.shape},
            .bytes = bytes};
  }

  // The upper halves of the fp32 values are the bf16 values.
  void make_bf16(const std::string& name) {
    Stored& tensor = tensors_.at(name);
    std::string bytes;
    for (std::size_t i = 0; i < tensor.bytes.size(); i += 4)
      bytes += tensor.bytes.substr(i + 2, 2);
    tensor.spec.dtype = DType::kBF16;
    tensor.bytes = bytes;
  }

  void write_model() const {
    std::vector<trainer::SafetensorsSpec> specs;
    for (const auto& [name, tensor] : tensors_)
      specs.push_back(tensor.spec);
    const trainer::SafetensorsLayout layout =
        trainer::layout_safetensors(specs, {{"format", "pt"}});
    std::string file(reinterpret_cast<const char*>(layout.head.data()), layout.head.size());
    for (const trainer::SafetensorsEntry& entry : layout.entries)
      file += tensors_.at(entry.spec.name).bytes;
    test::write_file(path("in/model_000007.safetensors"), file);
  }
  void write_meta(const std::string& text) const {
    fs::create_directories(path("in"));
    test::write_file(path("in/meta_000007.json"), text);
  }
  void change_meta(const std::string& field, const json& value) const {
    json meta = json::parse(test::read_file(path("in/meta_000007.json")));
    meta["model_config"][field] = value;
    write_meta(meta.dump());
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return directory_.path() / name; }
  [[nodiscard]] Outcome import_model() const {
    return run_program("checkpoint import --model " + path("in/model_000007.safetensors").string() +
                       " --out " + path("run").string());
  }
  [[nodiscard]] Outcome export_model() const {
    return run_program("checkpoint export --checkpoint " + path("run").string() + " --out " +
                       path("out").string());
  }
  void expect_refused(const Outcome& outcome, const std::vector<std::string>& words) const {
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    for (const std::string& word : words)
      EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_FALSE(fs::exists(path("run")));
  }

  test::TemporaryDirectory directory_;
  model::GptConfig model_;
  std::map<std::string, Stored> tensors_;
};

TEST_F(NanochatFiles, ExportOfAnImportIsTheSameBitForBit) {
  write_model();
  const Outcome imported = import_model();
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step_00000007/manifest.json")));
  const Outcome exported = export_model();
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(test::read_file(path("out/model_000007.safetensors")),
            test::read_file(path("in/model_000007.safetensors")));
  EXPECT_EQ(json::parse(test::read_file(path("out/meta_000007.json"))),
            json::parse(test::read_file(path("in/meta_000007.json"))));
}

TEST_F(NanochatFiles, BFloat16ComesOutAsTheSameNumbersInFp32) {
  const std::string name = "value_embeds.2.weight";
  make_bf16(name);
  write_model();
  ASSERT_EQ(import_model().code, 0);
  ASSERT_EQ(export_model().code, 0);
  const trainer::SafetensorsFile file(path("out/model_000007.safetensors"));
  const std::span<const std::byte> bytes = file.bytes(*file.find(name));
  const std::string& halves = tensors_.at(name).bytes;
  std::string wide;
  for (std::size_t i = 0; i < halves.size(); i += 2)
    wide += std::string(2, '\0') + halves.substr(i, 2);
  ASSERT_EQ(bytes.size(), wide.size());
  EXPECT_EQ(std::memcmp(bytes.data(), wide.data(), wide.size()), 0);
}

TEST_F(NanochatFiles, AnImportNamesNonFiniteNumbers) {
  std::string& bytes = tensors_.at("lm_head.weight").bytes;
  bytes[7 * sizeof(float) + 2] = '\x80';
  bytes[7 * sizeof(float) + 3] = '\x7F';  // infinity or NaN
  write_model();
  expect_refused(import_model(),
                 {"in/model_000007.safetensors: lm_head.weight holds a non-finite number"});
}

TEST_F(NanochatFiles, AnInterruptedExportIsRepeated) {
  write_model();
  ASSERT_EQ(import_model().code, 0);
  ASSERT_EQ(export_model().code, 0);
  EXPECT_EQ(export_model().code, 2) << "it is whole";
  const fs::path meta = path("out/meta_000007.json");
  const std::string text = test::read_file(meta);
  fs::rename(meta, meta.string() + ".tmp");
  test::write_file(path("out/model_000007.safetensors"), "");
  const Outcome again = export_model();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(test::read_file(meta), text);
  EXPECT_FALSE(fs::exists(meta.string() + ".tmp"));
  fs::remove(meta);
  EXPECT_EQ(export_model().code, 2) << "the model may be of something else";
}

TEST_F(NanochatFiles, AnImportedCheckpointIsForEvalAndSampleButNotForResume) {
  write_model();
  ASSERT_EQ(import_model().code, 0);
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "line " + std::to_string(i) + ";\n";
  test::write_file(path("text.txt"), text);
  const std::string run = path("run").string();
  const std::string data = path("text.txt").string();
  // A larger batch than there are rows.
  const Outcome eval = run_program("eval --checkpoint " + run +
                                   " --devices 1 --device-batch-size 1048576 --data " + data);
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("val_loss"));
  const Outcome sample = run_program("sample --checkpoint " + run + " --max-tokens 3 --prompt ab");
  EXPECT_EQ(sample.code, 0) << sample.err;
  const Outcome resume =
      run_program("train --resume " + run + " --out " + run + " --data " + data +
                  " --n-layer 3 --n-head 4 --n-kv-head 2 --n-embd 32 --max-seq-len 64 --devices 1"
                  " --num-iterations 20 --total-batch-size 128 --device-batch-size 2");
  EXPECT_EQ(resume.code, 2) << resume.out;
  EXPECT_THAT(resume.err, HasSubstr("without optimizer state"));
}

TEST_F(NanochatFiles, RefusesMissingExtraAndMisshapenTensorsByName) {
  tensors_.erase("smear_lambda");
  tensors_["surplus"] = {.spec = {.name = "surplus", .dtype = DType::kF32, .shape = {1}},
                         .bytes = std::string(4, '\0')};
  Stored& turned = tensors_.at("transformer.h.1.mlp.c_fc.weight");
  turned.spec.shape = {32, 128};
  write_model();
  expect_refused(import_model(), {"lacks smear_lambda", "has no surplus",
                                  "transformer.h.1.mlp.c_fc.weight is (32, 128), not (128, 32)"});
}

TEST_F(NanochatFiles, RefusesOtherDtypes) {
  Stored& tensor = tensors_.at("resid_lambdas");
  tensor.spec.dtype = DType::kI32;
  write_model();
  expect_refused(import_model(), {"resid_lambdas is int32, not fp32 or bf16"});
}

TEST_F(NanochatFiles, RefusesAConfigurationThatDoesNotFitTheWeights) {
  write_model();
  change_meta("n_layer", 4);
  // With four layers, value embeddings are in layers 1 and 3.
  expect_refused(import_model(), {"value_embeds.1.weight", "value_embeds.0.weight"});
}

TEST_F(NanochatFiles, RefusesMalformedMetaByField) {
  write_model();
  change_meta("n_head", "four");
  expect_refused(import_model(), {"meta_000007.json", "model_config.n_head", "\"four\""});
  change_meta("n_head", 3);
  expect_refused(import_model(), {"meta_000007.json", "--n-embd 32"});
  change_meta("n_head", 4);
  change_meta("window_pattern", "SX");
  expect_refused(import_model(), {"meta_000007.json", "SX"});
  write_meta("{}");
  expect_refused(import_model(), {"meta_000007.json", "model_config"});
}

TEST_F(NanochatFiles, RefusesToOverwrite) {
  write_model();
  ASSERT_EQ(import_model().code, 0);
  EXPECT_EQ(import_model().code, 2);
  ASSERT_EQ(export_model().code, 0);
  EXPECT_EQ(export_model().code, 2);
}

TEST_F(NanochatFiles, RejectsModelsThatNanochatDoesNotSupport) {
  model::GptConfig plain;
  plain.n_layer = 2;
  EXPECT_THAT(kit::nanochat_objection(plain), HasSubstr("value_embeddings false, not true"));
  EXPECT_THAT(kit::nanochat_objection(plain), HasSubstr("qk_scale"));
  model::set_nanochat_extras(plain);
  EXPECT_EQ(kit::nanochat_objection(plain), "");
}

// The import reads none of the values that Python writes this way.
TEST_F(NanochatFiles, AMetaFileMayHaveNonFiniteNumbers) {
  std::string meta = test::read_file(path("in/meta_000007.json"));
  meta.insert(
      1, R"("min_val_bpb": Infinity, "loop_state": {"a": [NaN, -Infinity], "NaN": "Infinity"},)");
  EXPECT_EQ(kit::parse_nanochat_meta(meta, "meta").step, kStep);
  meta.insert(1, R"("step": NaN,)");
  EXPECT_THAT(test::message_of<InputError>([&] { kit::parse_nanochat_meta(meta, "meta"); }),
              HasSubstr("occurs twice"));
  EXPECT_THAT(test::message_of<InputError>(
                  [&] { kit::parse_nanochat_meta(R"({"step": 1 Infinity})", "meta"); }),
              HasSubstr("malformed JSON"));
}

TEST_F(NanochatFiles, AMetaWithoutWindowsHasLongOnes) {
  json meta = json::parse(test::read_file(path("in/meta_000007.json")));
  meta["model_config"].erase("window_pattern");
  EXPECT_EQ(kit::parse_nanochat_meta(meta.dump(), "meta").model.window_pattern, "L");
  meta["model_config"].erase("n_layer");
  EXPECT_THAT(test::message_of<InputError>([&] { kit::parse_nanochat_meta(meta.dump(), "meta"); }),
              HasSubstr("no model_config.n_layer"));
}

TEST_F(NanochatFiles, AWindowPatternMayBeInLowerCase) {
  json meta = json::parse(test::read_file(path("in/meta_000007.json")));
  meta["model_config"]["window_pattern"] = "ssl";
  EXPECT_EQ(kit::parse_nanochat_meta(meta.dump(), "meta").model.window_pattern, "SSL");
}

}  // namespace
}  // namespace muo
