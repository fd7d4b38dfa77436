#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gpt_config.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::kit {

// A model for Hugging Face's `transformers`: model.safetensors and config.json in a folder, for
// AutoModelForCausalLM.from_pretrained(). kPort: for the port of nanochat in transformers (model
// type nanochat: NanoChatConfig, NanoChatForCausalLM), which is nanochat as of 2025-10, without
// extras and windows. kCode: for any model, with its code beside the weights (model_code.h;
// requires trust_remote_code).
enum class HuggingFaceForm { kPort, kCode };

inline constexpr const char* kHuggingFaceModel = "model.safetensors";
inline constexpr const char* kHuggingFaceConfig = "config.json";
inline constexpr const char* kHuggingFaceTokenizer = "tokenizer_config.json";

// Returns an error message that names each feature of the model that the port lacks, and the
// options to train without them. Empty if the port supports the model.
std::string port_objection(const model::GptConfig& model);

// Returns config.json. The vocabulary excludes padding. `bos` is the token that begins documents,
// if known.
std::string hugging_face_config_text(const model::GptConfig& model, std::optional<std::int32_t> bos,
                                     HuggingFaceForm form);

// Returns tokenizer_config.json, which gives AutoTokenizer the model's inputs and the token that
// begins and ends documents, if there is one.
std::string hugging_face_tokenizer_text(const model::GptConfig& model, std::string_view bos);

// A tensor of an exported file: the first rows of the checkpoint's tensor `from`, as many as `spec`
// has.
struct ExportedTensor {
  std::string from;
  trainer::SafetensorsSpec spec;
};
// Returns an fp32 tensor for each parameter of gpt_parameters(). Precondition for kPort:
// port_objection() is empty.
std::vector<ExportedTensor> hugging_face_tensors(const model::GptConfig& model,
                                                 HuggingFaceForm form);

}  // namespace muo::kit
