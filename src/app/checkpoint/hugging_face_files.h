#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "model/gpt_config.h"

namespace muo::app {

// A model for Hugging Face's `transformers`: model.safetensors and config.json in a folder, for
// AutoModelForCausalLM.from_pretrained. As its port of nanochat (model type nanochat:
// NanoChatConfig, NanoChatForCausalLM), which is nanochat of 2025-10, without extras and windows;
// or any model, with the code of it beside the weights (model_code.h; trust_remote_code).
enum class HuggingFaceForm { kPort, kCode };

inline constexpr const char* kHuggingFaceModel = "model.safetensors";
inline constexpr const char* kHuggingFaceConfig = "config.json";
inline constexpr const char* kHuggingFaceTokenizer = "tokenizer_config.json";

// Each feature of the model that the port lacks, and the options to train without them. Empty: the
// port can be this model.
std::string port_objection(const model::GptConfig& model);

// config.json. The vocabulary is without the rows that ours is padded with. `bos`: the token that
// begins documents, if it is known.
std::string hugging_face_config_text(const model::GptConfig& model, std::optional<std::int32_t> bos,
                                     HuggingFaceForm form);

// tokenizer_config.json, by which AutoTokenizer knows of a tokenizer.json which token begins and
// ends documents, if any does, and what the model takes.
std::string hugging_face_tokenizer_text(const model::GptConfig& model, std::string_view bos);

// A tensor of a file to write: the first rows, as many as `spec` has, of our tensor `from`.
struct ExportedTensor {
  std::string from;
  SafetensorsSpec spec;
};
// One for each of gpt_parameters, fp32. For the port the model has no port_objection.
std::vector<ExportedTensor> hugging_face_tensors(const model::GptConfig& model,
                                                 HuggingFaceForm form);

}  // namespace muo::app
