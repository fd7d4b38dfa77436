#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "model/gpt_config.h"

namespace muo {

// A model as Hugging Face's port of nanochat loads it (`transformers`, model type nanochat:
// NanoChatConfig, NanoChatForCausalLM): model.safetensors and config.json in a folder, for
// AutoModelForCausalLM.from_pretrained. The port is nanochat of 2025-10: no extras, no windows.

inline constexpr const char* kHuggingFaceModel = "model.safetensors";
inline constexpr const char* kHuggingFaceConfig = "config.json";

// Throws InputError naming `where`, each feature of the model that the port lacks, and the options
// to train without them.
void check_fits_hugging_face(const GptConfig& model, const std::string& where);

// config.json. The vocabulary is without the rows that ours is padded with. `bos`: the token that
// begins documents, if it is known.
std::string hugging_face_config_text(const GptConfig& model, std::optional<std::int32_t> bos);

// A tensor of a file to write: the first rows, as many as `spec` has, of our tensor `from`.
struct ExportedTensor {
  std::string from;
  SafetensorsSpec spec;
};
// One for each of gpt_parameters, fp32. `model` must fit.
std::vector<ExportedTensor> hugging_face_tensors(const GptConfig& model);

}  // namespace muo
