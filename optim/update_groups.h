#pragma once

#include <cstdint>

#include "kernels/step_scalars.h"
#include "runtime/parameter.h"

namespace muo {

enum class UpdateRule : std::uint8_t { kMuon, kAdamW };

struct UpdateGroup {
  UpdateRule rule = UpdateRule::kAdamW;
  int adam_group = 0;  // index into HyperParameters::adam
};

// nanochat's grouping (spec/optimizer 1.8): matrices of the blocks by Muon, the rest by AdamW.
UpdateGroup update_group(ParamRole role);

// Parameters of one class share their number formats.
enum class NumberClass : std::uint8_t {
  kMatrix,     // read by GEMMs: matrices of the blocks, and the head
  kEmbedding,  // token and value embeddings
  kScalar,     // what mixes and gates: fp32 throughout, as in nanochat
};
NumberClass number_class(ParamRole role);

// What the command line sets, with nanochat's defaults.
struct OptimizerOptions {
  std::int64_t iterations = 1;
  std::int64_t total_batch_tokens = 524288;  // B: learning rates scale with sqrt(B / 2^19)
  std::int64_t n_embd = 768;                 // embedding rates scale with sqrt(768 / n_embd)
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5;
  double weight_decay = 0.28;
  double weight_decay_scale = 1;  // sqrt(B / 2^19) D_ref / D (spec/optimizer 1.10): 0.28 is for d12
  std::int64_t warmup_steps = 40;
  double warmdown_ratio = 0.65;
  double final_lr_frac = 0.05;
};
HyperParameters make_hyper_parameters(const OptimizerOptions& options);

}  // namespace muo
