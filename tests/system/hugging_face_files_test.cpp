#include "kit/export/hugging_face_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/environment.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/program.h"
#include "system/run_files.h"

// Runs `checkpoint export --hf` as a user does. scripts/check_hf_export.py loads the result with
// transformers.
namespace muo {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::run_program;
using testing::HasSubstr;

// A plain model with grouped queries, and a nanochat model of the same size.
constexpr std::int64_t kLayers = 2, kWidth = 32, kHeads = 4, kKeyHeads = 2, kRow = 16;
constexpr std::int64_t kVocab = 257, kHead = kWidth / kHeads;
const std::string kSizes =
    " --n-layer 2 --n-embd 32 --n-head 4 --n-kv-head 2 --max-seq-len 16 --vocab-size 0 ";

class HuggingFaceFiles : public testing::Test {
 protected:
  [[nodiscard]] fs::path path(const std::string& name) const { return directory_.path() / name; }
  // Trains two steps, so that the weights are not the initial ones.
  void train(const std::string& options) const {
    test::write_text(path("text.txt"), 4000);
    const Outcome outcome = run_program(
        "train --backend host --devices 1 --total-batch-size 64 --num-iterations 2 --eval-every -1 "
        "--sample-every -1 --weight-decay-scale 1 --data " +
        path("text.txt").string() + " --out " + path("run").string() + kSizes + options);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  [[nodiscard]] Outcome export_model(const std::string& options = "") const {
    return run_program("checkpoint export " + path("run").string() + " --hf " +
                       path("hf").string() + options);
  }
  [[nodiscard]] json config() const {
    return json::parse(test::read_file(path("hf") / "config.json"));
  }

  test::TemporaryDirectory directory_;
};

TEST_F(HuggingFaceFiles, HoldEveryWeightUnderThePortsName) {
  train("--model plain");
  const Outcome outcome = export_model();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string hf = path("hf").string();
  std::string said;
  for (const char* const name :
       {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"})
    said += concat(hf, "/", name, "\n");
  EXPECT_EQ(outcome.out,
            concat(said, "load it in Python:\nfrom transformers import pipeline\n",
                   "generate = pipeline(\"text-generation\", model=\"", hf, "\")\nprint(",
                   "generate(\"Once upon a time\", max_new_tokens=50)[0][\"generated_text\"])\n"));
  const trainer::SafetensorsFile ours(path("run/checkpoints/step_00000002/model.safetensors"));
  const trainer::SafetensorsFile theirs(path("hf/model.safetensors"));
  EXPECT_EQ(theirs.metadata(), (trainer::SafetensorsMetadata{{"format", "pt"}}));

  struct Pair {
    std::string theirs, ours;
    Shape shape;
  };
  std::vector<Pair> pairs = {
      {"model.embed_tokens.weight", "transformer.wte.weight", {kVocab, kWidth}},
      {"lm_head.weight", "lm_head.weight", {kVocab, kWidth}}};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const std::string to = "model.layers." + std::to_string(i) + ".";
    const std::string from = "transformer.h." + std::to_string(i) + ".";
    for (const auto& pair :
         std::vector<Pair>{{"self_attn.q_proj", "attn.c_q", {kWidth, kWidth}},
                           {"self_attn.k_proj", "attn.c_k", {kKeyHeads * kHead, kWidth}},
                           {"self_attn.v_proj", "attn.c_v", {kKeyHeads * kHead, kWidth}},
                           {"self_attn.o_proj", "attn.c_proj", {kWidth, kWidth}},
                           {"mlp.fc1", "mlp.c_fc", {4 * kWidth, kWidth}},
                           {"mlp.fc2", "mlp.c_proj", {kWidth, 4 * kWidth}}})
      pairs.push_back({to + pair.theirs + ".weight", from + pair.ours + ".weight", pair.shape});
  }
  EXPECT_EQ(theirs.entries().size(), pairs.size());
  for (const Pair& pair : pairs) {
    const trainer::SafetensorsEntry* const entry = theirs.find(pair.theirs);
    ASSERT_NE(entry, nullptr) << pair.theirs;
    EXPECT_EQ(entry->spec.dtype, DType::kF32);
    EXPECT_EQ(entry->spec.shape, pair.shape) << pair.theirs;
    // Compares the first rows: our tensor is padded with rows after the vocabulary.
    const auto want = ours.bytes(*ours.find(pair.ours));
    const auto got = theirs.bytes(*entry);
    ASSERT_LE(got.size(), want.size());
    EXPECT_TRUE(std::ranges::equal(got, want.first(got.size()))) << pair.theirs;
  }
}

TEST_F(HuggingFaceFiles, ConfigurationOverridesThePortsDefaults) {
  train("--model plain");
  ASSERT_EQ(export_model().code, 0);
  const json is = config();
  EXPECT_EQ(is["model_type"], "nanochat");
  EXPECT_EQ(is["architectures"], json({"NanoChatForCausalLM"}));
  EXPECT_EQ(is["dtype"], "float32");
  EXPECT_EQ(is["vocab_size"], kVocab);
  EXPECT_EQ(is["hidden_size"], kWidth);
  EXPECT_EQ(is["intermediate_size"], 4 * kWidth);
  EXPECT_EQ(is["num_hidden_layers"], kLayers);
  EXPECT_EQ(is["num_attention_heads"], kHeads);
  EXPECT_EQ(is["num_key_value_heads"], kKeyHeads);
  EXPECT_EQ(is["max_position_embeddings"], kRow);
  EXPECT_EQ(is["hidden_act"], "relu2");
  EXPECT_EQ(is["final_logit_softcapping"], 15.0);
  EXPECT_EQ(is["rms_norm_eps"].get<double>(), std::ldexp(1.0, -23));
  EXPECT_EQ(is["rope_parameters"], json({{"rope_type", "default"}, {"rope_theta", 100000.0}}));
  EXPECT_EQ(is["tie_word_embeddings"], false);
  EXPECT_EQ(is["attention_bias"], false);
  // Ids of the byte tokenizer; the port's defaults are tokens 0 and 1.
  EXPECT_EQ(is["bos_token_id"], 256);
  EXPECT_EQ(is["eos_token_id"], 256);
  EXPECT_TRUE(is.contains("pad_token_id") && is["pad_token_id"].is_null());
}

TEST_F(HuggingFaceFiles, OmitUnknownDocumentTokensAndDisabledSoftCaps) {
  model::GptConfig model;
  model.vocab_size = 50257;
  model.softcap = 0;
  const json is =
      json::parse(kit::hugging_face_config_text(model, {}, kit::HuggingFaceForm::kPort));
  EXPECT_TRUE(is["bos_token_id"].is_null() && is["eos_token_id"].is_null());
  EXPECT_TRUE(is.contains("final_logit_softcapping") && is["final_logit_softcapping"].is_null());
}

TEST_F(HuggingFaceFiles, IncludeTheTokenizer) {
  const std::string tokenizer = test::source_directory() + "/tests/golden/tokenizer/tokenizer.json";
  train("--model plain --tokenizer " + tokenizer);
  const Outcome outcome = export_model();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  json exported = json::parse(test::read_file(path("hf/tokenizer.json")));
  json trained = json::parse(test::read_file(tokenizer));
  EXPECT_EQ(exported["post_processor"]["single"][0]["SpecialToken"]["id"], "<|bos|>");
  EXPECT_EQ(exported["post_processor"]["special_tokens"]["<|bos|>"]["ids"], json({700}));
  for (json* const each : {&exported, &trained})
    each->erase("post_processor");
  EXPECT_TRUE(exported == trained);
  EXPECT_EQ(config()["vocab_size"], 702);
  EXPECT_EQ(config()["bos_token_id"], 700);
  const json names = json::parse(test::read_file(path("hf/tokenizer_config.json")));
  EXPECT_EQ(names["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(names["bos_token"], "<|bos|>");
  EXPECT_EQ(names["eos_token"], "<|bos|>");
  EXPECT_EQ(names["model_max_length"], kRow);
  EXPECT_EQ(names["model_input_names"], json({"input_ids", "attention_mask"}));
}

TEST_F(HuggingFaceFiles, OfNanochatsModelHaveItsCode) {
  train("--model nanochat --document-mask on");
  const Outcome outcome = run_program("checkpoint export " + path("run").string() + " --hf-code " +
                                      path("hf").string());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("model=\"" + path("hf").string() + "\", trust_remote_code=True)"));
  const json is = config();
  for (const auto& [loader, place] : std::map<std::string, std::pair<std::string, std::string>>{
           {"AutoConfig", {"configuration_muograph", "MuographConfig"}},
           {"AutoModelForCausalLM", {"modeling_muograph", "MuographForCausalLM"}}}) {
    EXPECT_EQ(is["auto_map"][loader], place.first + "." + place.second);
    const std::string code = test::read_file(path("hf/" + place.first + ".py"));
    EXPECT_EQ(code, test::read_file(test::source_directory() + "/src/kit/export/transformers/" +
                                    place.first + ".py"));
    EXPECT_THAT(code, HasSubstr("class " + place.second + "("));
    EXPECT_THAT(outcome.out, HasSubstr("hf/" + place.first + ".py\n"));
  }
  EXPECT_EQ(is["model_type"], "muograph");
  EXPECT_EQ(is["bos_token_id"], 256);
  const json fields = {{"vocab_size", kVocab}, {"n_layer", kLayers},       {"n_embd", kWidth},
                       {"n_head", kHeads},     {"n_kv_head", kKeyHeads},   {"seq_len", kRow},
                       {"softcap", 15.0},      {"value_embeddings", true}, {"smear", true},
                       {"backout", true},      {"resid_lambdas", true},    {"x0_lambdas", true},
                       {"qk_scale", 1.2},      {"window_pattern", "SSSL"}, {"rope_base", 100000.0},
                       {"document_token", 256}};
  for (const auto& [name, value] : fields.items())
    EXPECT_EQ(is[name], value) << name;
  // Every weight has its name, without the rows that pad the vocabulary.
  const trainer::SafetensorsFile ours(path("run/checkpoints/step_00000002/model.safetensors"));
  const trainer::SafetensorsFile theirs(path("hf/model.safetensors"));
  EXPECT_EQ(theirs.entries().size(), ours.entries().size());
  for (const trainer::SafetensorsEntry& entry : theirs.entries()) {
    const auto want = ours.bytes(*ours.find(entry.spec.name));
    const auto got = theirs.bytes(entry);
    ASSERT_LE(got.size(), want.size());
    EXPECT_TRUE(std::ranges::equal(got, want.first(got.size()))) << entry.spec.name;
  }
  for (const char* const name : {"transformer.wte", "lm_head", "value_embeds.1"})
    EXPECT_EQ(theirs.find(std::string(name) + ".weight")->spec.shape[0], kVocab) << name;
}

TEST_F(HuggingFaceFiles, AreRefusedForNanochatsModelByItsFeatures) {
  train("--model nanochat");
  const Outcome outcome = export_model();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("value embeddings, smear, backout, residual lambdas, x0 lambdas, queries "
                        "and keys scaled by 1.2;"));
  EXPECT_THAT(outcome.err, HasSubstr("train with --model plain, or with --value-embeddings off "
                                     "--smear off --backout off --resid-lambdas off --x0-lambdas "
                                     "off --qk-scale 1; unchanged, export it with --hf-code DIR or "
                                     "--out DIR\n"));
  EXPECT_FALSE(fs::exists(path("hf")));
}

// Each unsupported feature is rejected on its own, and the message names only the option that turns
// it off.
TEST_F(HuggingFaceFiles, AreRefusedForEachFeatureAlone) {
  model::GptConfig plain;
  plain.seq_len = 256;
  EXPECT_EQ(kit::port_objection(plain), "");
  struct Case {
    void (*add)(model::GptConfig& model);
    std::string feature, option;
  };
  const std::vector<Case> cases = {
      {[](model::GptConfig& m) { m.value_embeddings = true; }, "value embeddings",
       "--value-embeddings off"},
      {[](model::GptConfig& m) { m.smear = true; }, "smear", "--smear off"},
      {[](model::GptConfig& m) { m.backout = true; }, "backout", "--backout off"},
      {[](model::GptConfig& m) { m.resid_lambdas = true; }, "residual lambdas",
       "--resid-lambdas off"},
      {[](model::GptConfig& m) { m.x0_lambdas = true; }, "x0 lambdas", "--x0-lambdas off"},
      {[](model::GptConfig& m) { m.qk_scale = 0.9F; }, "queries and keys scaled by 0.9",
       "--qk-scale 1"},
      {[](model::GptConfig& m) { m.window_pattern = "SL"; }, "windows SL", "--window-pattern L"},
  };
  for (const Case& each : cases) {
    model::GptConfig model = plain;
    each.add(model);
    EXPECT_EQ(kit::port_objection(model),
              "Hugging Face's nanochat lacks features of this model: " + each.feature +
                  "; to export with --hf, train with --model plain, or with " + each.option);
  }
  // Short windows have no effect if rows are not longer.
  model::GptConfig model = plain;
  model.window_pattern = "SL";
  model.seq_len = 128;
  EXPECT_EQ(kit::port_objection(model), "");
}

TEST_F(HuggingFaceFiles, AreNeverMixedWithOtherExports) {
  train("--model plain");
  EXPECT_THAT(export_model(" --out " + path("out").string()).err,
              HasSubstr("give --out DIR, for nanochat, or --hf DIR or --hf-code DIR"));
  const Outcome neither = run_program("checkpoint export " + path("run").string());
  EXPECT_EQ(neither.code, 2);
  EXPECT_THAT(neither.err, HasSubstr("give --out DIR, for nanochat, or --hf DIR or --hf-code DIR"));
  EXPECT_FALSE(fs::exists(path("hf")) || fs::exists(path("out")));
  ASSERT_EQ(export_model().code, 0);
  const Outcome again = export_model();
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("--hf: " + path("hf/model.safetensors").string() + " exists"));
  fs::rename(path("hf/config.json"), path("hf/config.json.tmp"));  // an interrupted export
  EXPECT_EQ(export_model().code, 0);
}

TEST_F(HuggingFaceFiles, HaveOurLogitsInTransformers) {
  const std::string python = test::environment("MUO_TEST_PYTHON").value_or("python3");
  if (test::run_command(python + " -c 'import accelerate, torch, transformers'").code != 0)
    GTEST_SKIP() << python << " has no packages accelerate, torch and transformers: pip install "
                 << "them, or say with MUO_TEST_PYTHON which python has them";
  const Outcome outcome = test::run_command(python + " " + test::source_directory() +
                                            "/scripts/check_hf_export.py " + test::program());
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

// For `sample --logits`, which that script reads, the token with the largest logit is the one
// drawn.
TEST_F(HuggingFaceFiles, AreComparedByLogitsThatSamplesAreDrawnFrom) {
  train("--model plain --embedding-lr 3 --unembedding-lr 1");
  const std::string sample = "sample " + path("run").string() + " --backend host --prompt 'ab' ";
  const json all = json::parse(run_program(sample + "--logits 1000").out);
  EXPECT_EQ(all["context"], json({256, 'a', 'b'}));
  ASSERT_EQ(all["logits"].size(), static_cast<std::size_t>(kVocab));
  for (std::size_t i = 1; i < all["logits"].size(); ++i)
    EXPECT_LE(all["logits"][i][1], all["logits"][i - 1][1]);
  const json three = json::parse(run_program(sample + "--logits 3").out);
  ASSERT_EQ(three["logits"].size(), 3U);
  EXPECT_EQ(three["logits"][2], all["logits"][2]);
  const std::string text = run_program(sample + "--max-tokens 1 --temperature 0").out;
  const int likely = all["logits"][0][0];
  EXPECT_EQ(text, likely < 256 ? std::string("ab") + static_cast<char>(likely) + "\n" : "ab\n");
  const std::string longer =
      sample.substr(0, sample.find("'ab'")) + "'" + std::string(50, 'x') + "y' ";
  const json last = json::parse(run_program(longer + "--logits 1").out)["context"];
  EXPECT_EQ(last.size(), 16U) << "what was read";
  EXPECT_EQ(last.back(), 'y');
}

}  // namespace
}  // namespace muo
