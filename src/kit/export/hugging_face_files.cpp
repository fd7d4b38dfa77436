#include "kit/export/hugging_face_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "kernels/norm.h"
#include "trainer/checkpoint/model_json.h"

namespace muo::kit {
namespace {

using nlohmann::json;

// True if a layer has an attention window shorter than the row.
bool has_short_windows(const model::GptConfig& model) {
  for (std::int64_t layer = 0; layer < model.n_layer; ++layer)
    if (model.window(layer) < model.seq_len - 1) return true;
  return false;
}

constexpr std::string_view kLayerPrefix = "transformer.h.";

// Suffixes of the names in a layer: ours and the port's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLayerNames = {{
    {"attn.c_q.weight", "self_attn.q_proj.weight"},
    {"attn.c_k.weight", "self_attn.k_proj.weight"},
    {"attn.c_v.weight", "self_attn.v_proj.weight"},
    {"attn.c_proj.weight", "self_attn.o_proj.weight"},
    {"mlp.c_fc.weight", "mlp.fc1.weight"},
    {"mlp.c_proj.weight", "mlp.fc2.weight"},
}};
constexpr std::string_view kEmbedding = "transformer.wte.weight", kHead = "lm_head.weight";

std::string port_name(std::string_view ours) {
  if (ours == kEmbedding) return "model.embed_tokens.weight";
  if (ours == kHead) return std::string(kHead);
  if (ours.starts_with(kLayerPrefix)) {
    const std::string_view rest = ours.substr(kLayerPrefix.size());
    const std::size_t dot = rest.find('.');
    for (const auto& [own, theirs] : kLayerNames)
      if (rest.substr(dot + 1) == own)
        return fmt::format("model.layers.{}.{}", rest.substr(0, dot), theirs);
  }
  throw Error(concat("Hugging Face's nanochat has no parameter for ", ours));
}

json port_config(const model::GptConfig& model) {
  const std::vector<ParamSpec> params = model::gpt_parameters(model);
  const auto mlp = std::ranges::find_if(
      params, [](const ParamSpec& param) { return param.name.ends_with("mlp.c_fc.weight"); });
  return {
      {"architectures", {"NanoChatForCausalLM"}},
      {"model_type", "nanochat"},
      {"vocab_size", model.vocab_size},
      {"hidden_size", model.n_embd},
      {"intermediate_size", mlp->shape[0]},
      {"num_hidden_layers", model.n_layer},
      {"num_attention_heads", model.n_head},
      {"num_key_value_heads", model.n_kv_head},
      {"max_position_embeddings", model.seq_len},
      {"hidden_act", "relu2"},
      {"attention_bias", false},
      {"rms_norm_eps", kRmsNormEps},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", model.rope_base}}},
      {"final_logit_softcapping", model.softcap > 0 ? json(model.softcap) : json()},
  };
}

// The arguments of configuration_muograph.py.
json code_config(const model::GptConfig& model) {
  json config = trainer::model_fields(model);
  config["architectures"] = {"MuographForCausalLM"};
  config["model_type"] = "muograph";
  config["auto_map"] = {{"AutoConfig", "configuration_muograph.MuographConfig"},
                        {"AutoModelForCausalLM", "modeling_muograph.MuographForCausalLM"}};
  return config;
}

}  // namespace

std::string port_objection(const model::GptConfig& model) {
  const std::array<std::tuple<bool, std::string, std::string_view>, 7> lacking = {{
      {model.value_embeddings, "value embeddings", "--value-embeddings off"},
      {model.smear, "smear", "--smear off"},
      {model.backout, "backout", "--backout off"},
      {model.resid_lambdas, "residual lambdas", "--resid-lambdas off"},
      {model.x0_lambdas, "x0 lambdas", "--x0-lambdas off"},
      {model.qk_scale != 1.0F, fmt::format("queries and keys scaled by {}", model.qk_scale),
       "--qk-scale 1"},
      {has_short_windows(model), fmt::format("windows {}", model.window_pattern),
       "--window-pattern L"},
  }};
  std::vector<std::string> features;
  std::vector<std::string_view> options;
  for (const auto& [has, feature, option] : lacking)
    if (has) {
      features.push_back(feature);
      options.push_back(option);
    }
  if (features.empty()) return "";
  return fmt::format(
      "Hugging Face's nanochat lacks features of this model: {}; to export with --hf, train "
      "with --model plain, or with {}",
      fmt::join(features, ", "), fmt::join(options, " "));
}

std::string hugging_face_config_text(const model::GptConfig& model, std::optional<std::int32_t> bos,
                                     HuggingFaceForm form) {
  const json document = bos ? json(*bos) : json();
  json config = form == HuggingFaceForm::kPort ? port_config(model) : code_config(model);
  config["dtype"] = "float32";
  config["tie_word_embeddings"] = false;
  config["bos_token_id"] = document;
  config["eos_token_id"] = document;  // a document ends where the next one begins
  config["pad_token_id"] = nullptr;   // the port's default, 1, is an ordinary token here
  return config.dump(2) + "\n";
}

std::string hugging_face_tokenizer_text(const model::GptConfig& model, std::string_view bos) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"model_input_names", {"input_ids", "attention_mask"}},
                 {"model_max_length", model.seq_len}};
  if (!bos.empty()) config["bos_token"] = config["eos_token"] = bos;
  return config.dump(2) + "\n";
}

std::vector<ExportedTensor> hugging_face_tensors(const model::GptConfig& model,
                                                 HuggingFaceForm form) {
  std::vector<ExportedTensor> out;
  for (const ParamSpec& param : model::gpt_parameters(model)) {
    const std::string name = form == HuggingFaceForm::kPort ? port_name(param.name) : param.name;
    ExportedTensor tensor{.from = param.name, .spec = {.name = name, .shape = param.shape}};
    const bool of_tokens = param.role == ParamRole::kEmbedding ||
                           param.role == ParamRole::kValueEmbedding ||
                           param.role == ParamRole::kUnembedding;
    if (of_tokens) tensor.spec.shape = {model.vocab_size, param.shape[1]};
    out.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace muo::kit
