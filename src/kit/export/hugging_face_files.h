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
// type nanochat: NanoChatConfig, NanoChatForCausalLM), which is nanochat of 2025-10, without extras
// and windows. kCode: for any model, with its code beside the weights (model_code.h;
// trust_remote_code).
enum class HuggingFaceForm { kPort, kCode };

inline constexpr const char* kHuggingFaceModel = "model.safetensors";
inline constexpr const char* kHuggingFaceConfig = "config.json";
inline constexpr const char* kHuggingFaceTokenizer = "tokenizer_config.json";

// Returns an error message with each feature of the model that the port lacks, and the options to
// train without them; empty if the port supports the model.
std::string port_objection(const model::GptConfig& model);

// Returns config.json. Its vocabulary excludes padding. `bos` is the token that begins documents,
// if it is known.
std::string hugging_face_config_text(const model::GptConfig& model, std::optional<std::int32_t> bos,
                                     HuggingFaceForm form);

// Returns tokenizer_config.json, which tells AutoTokenizer the token that begins and ends
// documents, if there is one, and the model's inputs.
std::string hugging_face_tokenizer_text(const model::GptConfig& model, std::string_view bos);

// A tensor of an exported file: the first rows of the checkpoint's tensor `from`, as many as `spec`
// has.
struct ExportedTensor {
  std::string from;
  trainer::SafetensorsSpec spec;
};
// Returns an fp32 tensor for each parameter of gpt_parameters(). Precondition for the port: there
// is no port_objection().
std::vector<ExportedTensor> hugging_face_tensors(const model::GptConfig& model,
                                                 HuggingFaceForm form);

}  // namespace muo::kit
