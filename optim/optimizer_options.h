#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "kernels/step_scalars.h"
#include "optim/newton_schulz_form.h"
#include "runtime/parameter.h"

namespace muo::optim {

// Factors of learning rates and weight decay that follow from the sizes of a run.
struct RateScales {
  double batch_lr = 1;  // for all learning rates except that of smear
  double width_lr = 1;  // additionally for those of embeddings and head
  double weight_decay = 1;
};

// The defaults are nanochat's for depth 12.
struct OptimizerOptions {
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5;
  double weight_decay = 0.28;  // for Muon
  std::optional<double> batch_lr_scale = {}, width_lr_scale = {},
                        weight_decay_scale = {};  // empty: as in RateScales
  std::int64_t warmup_steps = 40;
  double warmdown_ratio = 0.65, final_lr_frac = 0.05;
  WarmdownShape warmdown_shape = WarmdownShape::kLinear;
  // Muon's momentum rises linearly from `start` to `momentum` in `ramp` steps, and changes to `end`
  // during the warm-down. Empty values: those of the version; likewise for the betas. AdamW's betas
  // apply to all groups.
  double momentum_start = 0.85;
  std::optional<double> momentum = {}, momentum_end = {};
  std::optional<std::int64_t> momentum_ramp = {};
  bool nesterov = true;
  std::optional<double> muon_beta2 = {}, adam_beta1 = {}, adam_beta2 = {};
  double adam_eps = 1e-10;
  std::int64_t ns_steps = kNewtonSchulzSteps;
  std::string version = "head";         // name of an OptimizerVersion
  std::string newton_schulz = "plain";  // name of a NewtonSchulzForm

  // Returns `automatic`, except for values that are set here.
  [[nodiscard]] RateScales scales(const RateScales& automatic) const;
};

enum class OnOutlier : std::uint8_t { kLog, kSkip };
constexpr auto names_of(OnOutlier) { return name_list("log", "skip"); }

// The numerics guard (kernels/commit.h).
struct GuardOptions {
  double max_grad_norm = 0;       // 0: no clipping
  double outlier_deviations = 8;  // 0: off
  OnOutlier on_outlier = OnOutlier::kLog;
  std::int64_t max_skipped = 100;  // maximum number of skipped updates in the run; -1: any number
};

// Returns the hyper-parameters in device memory for a run of `iterations` steps with these options.
// Throws InputError for an unknown version.
HyperParameters make_hyper_parameters(const OptimizerOptions& optimizer, const GuardOptions& guard,
                                      std::int64_t iterations, const RateScales& automatic = {});

// The initial learning rate of a group of parameters, with nanochat's name for the group.
struct LearningRate {
  std::string_view group;
  double lr = 0;
};
// The rates of the groups that occur in `params`, in nanochat's order. Tall matrices have a higher
// rate: muon_rate().
std::vector<LearningRate> learning_rates(const HyperParameters& hyper,
                                         std::span<const ParamSpec> params);

}  // namespace muo::optim
