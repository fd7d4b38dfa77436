#include "optim/update_groups.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace muo {
namespace {
enum AdamGroup : int { kHead, kTokens, kValues, kResid, kX0, kSmear };
}  // namespace

UpdateGroup update_group(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
      return {.rule = UpdateRule::kMuon};
    case ParamRole::kUnembedding:
      return {.adam_group = kHead};
    case ParamRole::kEmbedding:
      return {.adam_group = kTokens};
    case ParamRole::kValueEmbedding:
      return {.adam_group = kValues};
    case ParamRole::kResidLambda:
      return {.adam_group = kResid};
    case ParamRole::kX0Lambda:
      return {.adam_group = kX0};
    case ParamRole::kSmear:
      return {.adam_group = kSmear};
  }
  MUO_FAIL("parameter role ", static_cast<int>(role));
}

NumberClass number_class(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
    case ParamRole::kUnembedding:
      return NumberClass::kMatrix;
    case ParamRole::kEmbedding:
    case ParamRole::kValueEmbedding:
      return NumberClass::kEmbedding;
    case ParamRole::kResidLambda:
    case ParamRole::kX0Lambda:
    case ParamRole::kSmear:
      return NumberClass::kScalar;
  }
  MUO_FAIL("parameter role ", static_cast<int>(role));
}

HyperParameters make_hyper_parameters(const OptimizerOptions& options) {
  constexpr double kEps = 1e-10;
  constexpr double kSmearLr = 0.2;  // scaled by neither batch nor width
  const double batch = options.batch_scale;
  const double width = options.width_scale;
  const double embedding = options.embedding_lr * batch * width;
  const double scalar = options.scalar_lr * batch;

  HyperParameters hyper;
  hyper.iterations = options.iterations;
  hyper.warmup_steps = options.warmup_steps;
  hyper.warmdown_steps =
      std::llrint(options.warmdown_ratio * static_cast<double>(options.iterations));
  hyper.final_lr_frac = options.final_lr_frac;
  hyper.max_grad_norm = options.max_grad_norm;
  hyper.outlier_deviations = options.outlier_deviations;
  hyper.skip_outliers = options.skip_outliers ? 1 : 0;
  hyper.muon_lr = options.matrix_lr * batch;
  hyper.muon_weight_decay = options.weight_decay * options.weight_decay_scale;
  const OptimizerVersion& version = *options.version;
  hyper.muon_beta2 = version.beta2;
  hyper.muon_momentum_peak = version.momentum_peak;
  hyper.muon_momentum_end = version.momentum_end;
  hyper.muon_momentum_ramp = version.momentum_ramp;
  if (version.decay == OptimizerVersion::Decay::kNone) hyper.muon_weight_decay = 0;
  hyper.linear_weight_decay = version.decay == OptimizerVersion::Decay::kLinear ? 1 : 0;
  const bool by_group = version.adam_by_group;
  const auto adam = [&](double lr, double beta1, double beta2, double weight_decay) {
    return AdamHyper{.lr = lr,
                     .beta1 = beta1,
                     .beta2 = by_group ? beta2 : 0.95,
                     .eps = kEps,
                     .weight_decay = by_group ? weight_decay : 0.0};
  };
  hyper.adam[kHead] = adam(options.unembedding_lr * batch * width, 0.8, 0.96, 0.01);
  hyper.adam[kTokens] = adam(embedding, 0.8, 0.995, 0.001);
  hyper.adam[kValues] = adam(by_group ? embedding * 0.5 : embedding, 0.8, 0.995, 0.01);
  hyper.adam[kResid] = adam(scalar * 0.01, 0.8, 0.95, 0.05);
  hyper.adam[kX0] = adam(scalar, 0.96, 0.95, 0.0);
  hyper.adam[kSmear] = adam(kSmearLr, 0.8, 0.95, 0.0);
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
    out.push_back(
        {.group = row.name,
         .lr = group.rule == UpdateRule::kMuon ? hyper.muon_lr : hyper.adam[group.adam_group].lr});
  }
  return out;
}

}  // namespace muo
