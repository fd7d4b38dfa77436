#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/step_scalars.h"
#include "optim/optimizer_version.h"
#include "runtime/parameter.h"

namespace muo {

enum class UpdateRule : std::uint8_t { kMuon, kAdamW };

struct UpdateGroup {
  UpdateRule rule = UpdateRule::kAdamW;
  int adam_group = 0;  // index into HyperParameters::adam
};

// nanochat's grouping (docs/spec/optimizer.md, "Parameter groups"): matrices of the blocks by Muon,
// the rest by AdamW.
UpdateGroup update_group(ParamRole role);

// Parameters of one class share their number formats.
enum class NumberClass : std::uint8_t {
  kMatrix,     // read by GEMMs: matrices of the blocks, and the head
  kEmbedding,  // token and value embeddings
  kScalar,     // what mixes and gates: fp32 throughout, as in nanochat
};
NumberClass number_class(ParamRole role);

// What the command line sets, with nanochat's defaults, which are for depth 12.
struct OptimizerOptions {
  std::int64_t iterations = 1;
  double batch_scale = 1;  // of all learning rates but smear's
  double width_scale = 1;  // of those of embeddings and head, too
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5;
  double weight_decay = 0.28;
  double weight_decay_scale = 1;
  std::int64_t warmup_steps = 40;
  double warmdown_ratio = 0.65;
  double final_lr_frac = 0.05;
  double max_grad_norm = 0, outlier_deviations = 0;  // 0: off (kernels/commit.h)
  bool skip_outliers = false;
  const OptimizerVersion* version = &optimizer_versions().front();
};
HyperParameters make_hyper_parameters(const OptimizerOptions& options);

// The initial learning rate of a group of parameters, under nanochat's name for it.
struct LearningRate {
  std::string_view group;
  double lr = 0;
};
// Of the groups that `params` have, in nanochat's order. Tall matrices learn faster: muon_rate().
std::vector<LearningRate> learning_rates(const HyperParameters& hyper,
                                         std::span<const ParamSpec> params);

}  // namespace muo
