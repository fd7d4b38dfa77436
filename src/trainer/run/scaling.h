#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/run/run_config.h"

namespace muo::trainer {

// Nanochat's scaling rules (docs/spec/optimizer.md, "Scaling rules"). The depth determines the
// model's sizes, and these rules determine the training horizon, batch and rates. The rules were
// fitted around depth 12 and are extrapolated to other sizes.

inline constexpr std::int64_t kReferenceBatch = 1 << 19;  // tokens per step at depth 12

// D and B of a model, made from `options`, trained on `ratio` tokens per scaling parameter: B =
// 2^round(log2(2^19 (D / D_ref)^0.383)), with halves rounded to even. Throws InputError if D is
// over 1e18.
ScalingTargets scaling_targets(const model::GptConfig& model, const ModelOptions& options,
                               double ratio);

// Factor of all learning rates except smear's: sqrt(B / 2^19).
double batch_lr_scale(std::int64_t batch_tokens);
// Factor of the learning rates of embeddings and head: sqrt(768 / n_embd).
double width_lr_scale(std::int64_t n_embd);
// Factor of Muon's weight decay: sqrt(B / 2^19) D_ref / D. It keeps B / (lr decay D) at its value
// for depth 12.
double weight_decay_scale(const ScalingTargets& targets, std::int64_t batch_tokens);

// The results of the rules for a run, including overrides, as a few lines of text.
std::vector<std::string> scaling_notes(const RunConfig& run);

}  // namespace muo::trainer
