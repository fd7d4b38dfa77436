#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "model/gpt_config.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::kit {

// A nanochat checkpoint: the state dict as model_000123.safetensors, in fp32 or bf16, with
// nanochat's parameter names, and meta_000123.json with the configuration.
// scripts/convert_nanochat.py converts between the former and nanochat's model_000123.pt.

struct NanochatMeta {
  model::GptConfig model;
  std::int64_t step = 0;
};

// Parses "step" (default 0) and "model_config". Files of 2025 have no window pattern; all their
// windows are long. Other fields may be NaN or infinite, as Python writes them. Throws InputError
// with `where` and the field if one is missing, malformed or invalid.
NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where);

// Returns an error message if nanochat cannot represent the model (its extras are always on and
// some constants are fixed), with the way to train a model that it can represent; otherwise empty.
std::string nanochat_objection(const model::GptConfig& model);

// Returns the text of a meta file. Precondition: nanochat_objection() is empty for the model.
std::string nanochat_meta_text(const NanochatMeta& meta);

// Throws InputError listing the tensors that `file` lacks, has in addition, has with another shape,
// or has with a dtype other than fp32 and bf16.
void check_weights(const trainer::SafetensorsFile& file, std::span<const ParamSpec> params);

// Returns meta_000123.json beside model_000123.safetensors; empty if `model` has another name.
std::filesystem::path meta_beside(const std::filesystem::path& model);

}  // namespace muo::kit
