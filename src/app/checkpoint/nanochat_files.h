#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "app/checkpoint/safetensors.h"
#include "model/gpt_config.h"

namespace muo::app {

// nanochat's checkpoint: its state dict as model_000123.safetensors, every parameter under its own
// name, fp32 or bf16, and meta_000123.json with the configuration. scripts/convert_nanochat.py
// makes the first from nanochat's model_000123.pt, and the other way round.

struct NanochatMeta {
  model::GptConfig model;
  std::int64_t step = 0;
};

// Reads "step" (0 if absent) and "model_config", whose windows, if absent as in files of 2025, are
// long. What else the file has may be NaN or infinite, as Python writes these. Throws InputError
// naming `where` and the field for anything missing, malformed or impossible.
NanochatMeta parse_nanochat_meta(std::string_view text, const std::string& where);

// Why nanochat cannot be this model, as all extras are on there and some constants fixed, and how
// to train one that it can be. Empty: it can.
std::string nanochat_objection(const model::GptConfig& model);

// The other direction, of a model that nanochat can be.
std::string nanochat_meta_text(const NanochatMeta& meta);

// Throws InputError naming the tensors that `file` lacks, has too many, or has with another shape
// or with a dtype other than fp32 and bf16.
void check_weights(const SafetensorsFile& file, std::span<const ParamSpec> params);

// meta_000123.json beside model_000123.safetensors; empty if `model` is not named so.
std::filesystem::path meta_beside(const std::filesystem::path& model);

}  // namespace muo::app
