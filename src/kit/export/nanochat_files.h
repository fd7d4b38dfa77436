#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "model/gpt_config.h"
#include "trainer/checkpoint/safetensors.h"

namespace muo::kit {

// nanochat's checkpoint: its state dict as model_000123.safetensors, in fp32 or bf16, with the same
// names of parameters, and meta_000123.json with the configuration. scripts/convert_nanochat.py
// converts between the former and nanochat's model_000123.pt.

struct NanochatMeta {
  model::GptConfig model;
  std::int64_t step = 0;
};

// Parses "step" (default 0) and "model_config"; files of 2025 have no windows, which are then long.
// Other fields may be NaN or infinite, as Python writes them. Throws InputError with `where` and
// the field if one is missing, malformed or invalid.
NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where);

// Returns an error message if nanochat cannot represent the model, as its extras are always on and
// some constants are fixed, with how to train one that it can; else an empty text.
std::string nanochat_objection(const model::GptConfig& model);

// Returns the text of a meta file. Precondition: the model has no nanochat_objection().
std::string nanochat_meta_text(const NanochatMeta& meta);

// Throws InputError with the tensors that `file` lacks, has in addition, or has with another shape
// or with a dtype other than fp32 and bf16.
void check_weights(const trainer::SafetensorsFile& file, std::span<const ParamSpec> params);

// Returns meta_000123.json beside model_000123.safetensors; empty if `model` has another name.
std::filesystem::path meta_beside(const std::filesystem::path& model);

}  // namespace muo::kit
