#include "optim/optimizer_options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "optim/optimizer_version.h"
#include "optim/update_groups.h"

namespace muo::optim {

RateScales OptimizerOptions::scales(const RateScales& automatic) const {
  return {.batch_lr = batch_lr_scale.value_or(automatic.batch_lr),
          .width_lr = width_lr_scale.value_or(automatic.width_lr),
          .weight_decay = weight_decay_scale.value_or(automatic.weight_decay)};
}

HyperParameters make_hyper_parameters(const OptimizerOptions& optimizer, const GuardOptions& guard,
                                      std::int64_t iterations, const RateScales& automatic) {
  constexpr double kSmearLr = 0.2;  // not scaled, neither by batch nor by width
  const RateScales scales = optimizer.scales(automatic);
  const double embedding = optimizer.embedding_lr * scales.batch_lr * scales.width_lr;
  const double scalar = optimizer.scalar_lr * scales.batch_lr;

  HyperParameters hyper;
  hyper.iterations = iterations;
  hyper.warmup_steps = optimizer.warmup_steps;
  hyper.warmdown_steps = std::llrint(optimizer.warmdown_ratio * static_cast<double>(iterations));
  hyper.warmdown_ratio = optimizer.warmdown_ratio;
  hyper.warmdown_shape = optimizer.warmdown_shape;
  hyper.final_lr_frac = optimizer.final_lr_frac;
  hyper.max_grad_norm = guard.max_grad_norm;
  hyper.outlier_deviations = guard.outlier_deviations;
  hyper.skip_outliers = guard.on_outlier == OnOutlier::kSkip ? 1 : 0;
  hyper.matrix_lr = optimizer.matrix_lr * scales.batch_lr;
  hyper.muon_weight_decay = optimizer.weight_decay * scales.weight_decay;
  const OptimizerVersion& version = optimizer_version(optimizer.version);
  hyper.muon_beta2 = optimizer.muon_beta2.value_or(version.beta2);
  hyper.muon_momentum_start = optimizer.momentum_start;
  hyper.muon_momentum_peak = optimizer.momentum.value_or(version.momentum_peak);
  hyper.muon_momentum_end = optimizer.momentum_end.value_or(version.momentum_end);
  hyper.muon_momentum_ramp = optimizer.momentum_ramp.value_or(version.momentum_ramp);
  hyper.muon_nesterov = optimizer.nesterov ? 1 : 0;
  if (version.decay == OptimizerVersion::Decay::kNone) hyper.muon_weight_decay = 0;
  hyper.linear_weight_decay = version.decay == OptimizerVersion::Decay::kLinear ? 1 : 0;
  const bool by_group = version.adam_by_group;
  const auto adam = [&](ParamRole role, double lr, double beta1, double beta2,
                        double weight_decay) {
    hyper.adam[update_group(role).adam_group] = {
        .lr = lr,
        .beta1 = optimizer.adam_beta1.value_or(beta1),
        .beta2 = optimizer.adam_beta2.value_or(by_group ? beta2 : 0.95),
        .eps = optimizer.adam_eps,
        .weight_decay = by_group ? weight_decay : 0.0};
  };
  adam(ParamRole::kUnembedding, optimizer.unembedding_lr * scales.batch_lr * scales.width_lr, 0.8,
       0.96, 0.01);
  adam(ParamRole::kEmbedding, embedding, 0.8, 0.995, 0.001);
  adam(ParamRole::kValueEmbedding, by_group ? embedding * 0.5 : embedding, 0.8, 0.995, 0.01);
  adam(ParamRole::kResidLambda, scalar * 0.01, 0.8, 0.95, 0.05);
  adam(ParamRole::kX0Lambda, scalar, 0.96, 0.95, 0.0);
  adam(ParamRole::kSmear, kSmearLr, 0.8, 0.95, 0.0);
  return hyper;
}

std::vector<LearningRate> learning_rates(const HyperParameters& hyper,
                                         std::span<const ParamSpec> params) {
  struct Row {
    ParamRole role;
    std::string_view name;
  };
  constexpr std::array<Row, 7> kRows = {{{ParamRole::kUnembedding, "lm_head"},
                                         {ParamRole::kEmbedding, "wte"},
                                         {ParamRole::kValueEmbedding, "value_embeds"},
                                         {ParamRole::kResidLambda, "resid_lambdas"},
                                         {ParamRole::kX0Lambda, "x0_lambdas"},
                                         {ParamRole::kSmear, "smear"},
                                         {ParamRole::kMatrix, "matrices"}}};
  std::vector<LearningRate> out;
  for (const Row& row : kRows) {
    if (std::ranges::find(params, row.role, &ParamSpec::role) == params.end()) continue;
    const UpdateGroup group = update_group(row.role);
    out.push_back({.group = row.name,
                   .lr = group.rule == UpdateRule::kMuon ? hyper.matrix_lr
                                                         : hyper.adam[group.adam_group].lr});
  }
  return out;
}

}  // namespace muo::optim
