#pragma once

#include <cmath>
#include <cstdint>

#include "base/enum_names.h"
#include "base/host_device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

inline constexpr int kMaxAdamGroups = 8;

// Hyper-parameters of one AdamW group.
struct AdamHyper {
  double lr = 0;  // initial; in a step, lr * lr_multiplier is used
  double beta1 = 0, beta2 = 0;
  double eps = 0;
  double weight_decay = 0;  // not scheduled
};

// How learning rates fall in the warm-down; 1-sqrt: Hägele et al. 2024, "Scaling Laws and
// Compute-Optimal Training Beyond Fixed Training Durations", 3.2.
enum class WarmdownShape : std::int32_t { kLinear, kCosine, kOneMinusSqrt };
constexpr auto names_of(WarmdownShape) { return name_list("linear", "cosine", "1-sqrt"); }

// The schedules' positions in a run whose length is a time (trainer/train/pacing.h): the share of
// the run that is over, from 0 to 1. Each step from `from` on advances it by `per_step`.
struct Pace {
  std::int64_t from = -1;  // -1: the run's length is a number of steps
  double position = 0;     // of step `from`
  double per_step = 0;

  [[nodiscard]] MUO_HOST_DEVICE double at(std::int64_t step) const {
    const double reached = position + static_cast<double>(step - from) * per_step;
    return reached < 1.0 ? reached : 1.0;
  }
  bool operator==(const Pace&) const = default;
};

// All optimizer settings that differ between runs or trials of a sweep, including the
// schedules. They are in device memory, so that changing them needs no new capture.
// make_hyper_parameters() fills them.
struct HyperParameters {
  std::int64_t iterations = 1;  // N, the horizon of the schedules
  std::int64_t warmup_steps = 0;
  std::int64_t warmdown_steps = 0;  // W = rint(warmdown_ratio * N), half to even
  double warmdown_ratio = 0;        // of a run with a pace
  WarmdownShape warmdown_shape = WarmdownShape::kLinear;  // of learning rates, not of the momentum
  Pace pace = {};                                         // the run may replace it before any step
  double final_lr_frac = 0;
  double matrix_lr = 0;                  // Muon's learning rate, initial
  double muon_beta2 = 0;                 // decay of NorMuon's factored variance
  double muon_weight_decay = 0;          // initial; decays to zero
  std::int64_t linear_weight_decay = 0;  // 0: cosine decay, else linear
  double muon_momentum_start = 0, muon_momentum_peak = 0, muon_momentum_end = 0;
  std::int64_t muon_momentum_ramp = 1;  // steps from start to peak
  std::int64_t muon_nesterov = 1;       // 0: plain momentum
  AdamHyper adam[kMaxAdamGroups] = {};
  // The numerics guard (kernels/commit.h); 0 turns each off.
  double max_grad_norm = 0;        // gradients of larger norm are scaled down to this norm
  double outlier_deviations = 0;   // outliers exceed the mean by more standard deviations than this
  std::int64_t skip_outliers = 0;  // 1: updates of outlier steps are not committed
};

enum class Verdict : std::int32_t { kOrdinary, kOutlier, kNotFinite };

// The scalars of a step, which every optimizer kernel reads on the device. Only `step` and
// `updates` are state (both are saved in checkpoints); advance_step recomputes the rest from them.
struct StepScalars {
  std::int64_t step = 0;     // batches consumed; position in the schedules
  std::int64_t updates = 0;  // committed updates; Adam's t is updates + 1
  // decide()'s results, the same on all ranks (kernels/commit.h):
  std::int32_t commit = 0;  // 1: state and weights are written
  Verdict verdict = Verdict::kOrdinary;
  float gradient_scale = 1;  // for clipping: commits multiply gradients by it
  float loss_deviations = 0, norm_deviations = 0;
  float lr_multiplier = 0;
  float muon_momentum = 0;
  float muon_look_ahead = 0;  // weight of the momentum in Muon's input: mu for Nesterov, else 1
  float muon_beta2 = 0;
  double matrix_lr = 0;  // double, as it is multiplied by muon_rate() before rounding
  float muon_weight_decay = 0;
  struct Adam {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2;  // 1 - beta^t, in fp32 as nanochat computes them
  } adam[kMaxAdamGroups] = {};
};

// The schedules of nanochat's base_train.py (docs/spec/optimizer.md, "Schedules"), in double. `it`
// is the 0-based step; beyond the horizon the final values hold. With a pace, they are the same
// functions of its positions, and the warm-up and the ramp of the momentum end after kMaxRise of
// the run if their steps take longer. Inline, so that the kernels of all backends and the logger
// evaluate the same code.
inline constexpr double kMaxRise = 0.05;
inline constexpr double kPi = 3.14159265358979323846;

// Progress at step `it` of a rise of which `done` of `steps` steps are done; at most 1.
MUO_HOST_DEVICE inline double paced_rise(const Pace& pace, std::int64_t it, std::int64_t done,
                                         std::int64_t steps) {
  if (done >= steps) return 1.0;
  const double by_steps = static_cast<double>(done) / static_cast<double>(steps);
  return fmin(1.0, fmax(by_steps, pace.at(it) / kMaxRise));
}
// The share of the warm-down that is over.
MUO_HOST_DEVICE inline double paced_warmdown(const HyperParameters& hyper, std::int64_t it) {
  const double left = 1.0 - hyper.pace.at(it);
  return left < hyper.warmdown_ratio ? 1.0 - left / hyper.warmdown_ratio : 0.0;
}

// The multiplier where `left`, from 1 to 0, of the warm-down is to come.
MUO_HOST_DEVICE inline double lr_in_warmdown(const HyperParameters& hyper, double left) {
  double p = left;
  if (hyper.warmdown_shape == WarmdownShape::kCosine) p = 0.5 * (1.0 - cos(kPi * left));
  if (hyper.warmdown_shape == WarmdownShape::kOneMinusSqrt) p = 1.0 - sqrt(1.0 - left);
  return p + (1.0 - p) * hyper.final_lr_frac;
}

MUO_HOST_DEVICE inline double lr_multiplier_at(const HyperParameters& hyper, std::int64_t it) {
  if (hyper.pace.from >= 0) {
    const double rise = paced_rise(hyper.pace, it, it + 1, hyper.warmup_steps);
    if (rise < 1.0) return rise;
    return lr_in_warmdown(hyper, 1.0 - paced_warmdown(hyper, it));
  }
  if (it < hyper.warmup_steps)
    return static_cast<double>(it + 1) / static_cast<double>(hyper.warmup_steps);
  const std::int64_t left = hyper.iterations - it;
  if (left >= hyper.warmdown_steps) return 1.0;
  return lr_in_warmdown(
      hyper,
      left > 0 ? static_cast<double>(left) / static_cast<double>(hyper.warmdown_steps) : 0.0);
}

MUO_HOST_DEVICE inline double muon_momentum_at(const HyperParameters& hyper, std::int64_t it) {
  const auto between = [](double from, double to, double p) { return (1.0 - p) * from + p * to; };
  if (hyper.pace.from >= 0) {
    const double rise = paced_rise(hyper.pace, it, it, hyper.muon_momentum_ramp);
    if (rise < 1.0) return between(hyper.muon_momentum_start, hyper.muon_momentum_peak, rise);
    return between(hyper.muon_momentum_peak, hyper.muon_momentum_end, paced_warmdown(hyper, it));
  }
  if (it < hyper.muon_momentum_ramp) {  // in short runs, the ramp has priority over the warmdown
    const double p = static_cast<double>(it) / static_cast<double>(hyper.muon_momentum_ramp);
    return between(hyper.muon_momentum_start, hyper.muon_momentum_peak, p);
  }
  const std::int64_t into = it - (hyper.iterations - hyper.warmdown_steps);
  if (into < 0) return hyper.muon_momentum_peak;
  const double p = into < hyper.warmdown_steps
                       ? static_cast<double>(into) / static_cast<double>(hyper.warmdown_steps)
                       : 1.0;
  return between(hyper.muon_momentum_peak, hyper.muon_momentum_end, p);
}

MUO_HOST_DEVICE inline double muon_weight_decay_at(const HyperParameters& hyper, std::int64_t it) {
  if (it >= hyper.iterations) return 0.0;
  const double p = hyper.pace.from >= 0
                       ? hyper.pace.at(it)
                       : static_cast<double>(it) / static_cast<double>(hyper.iterations);
  if (hyper.linear_weight_decay != 0) return hyper.muon_weight_decay * (1.0 - p);
  return hyper.muon_weight_decay * 0.5 * (1.0 + cos(kPi * p));
}

// Computes all of a step's scalars from `step` and `updates`.
MUO_HOST_DEVICE inline void fill_step_scalars(const HyperParameters& hyper, StepScalars& scalars) {
  const double multiplier = lr_multiplier_at(hyper, scalars.step);
  scalars.commit = 0;
  scalars.lr_multiplier = static_cast<float>(multiplier);
  scalars.muon_momentum = static_cast<float>(muon_momentum_at(hyper, scalars.step));
  scalars.muon_look_ahead = hyper.muon_nesterov != 0 ? scalars.muon_momentum : 1.0F;
  scalars.muon_beta2 = static_cast<float>(hyper.muon_beta2);
  scalars.matrix_lr = hyper.matrix_lr * multiplier;
  scalars.muon_weight_decay = static_cast<float>(muon_weight_decay_at(hyper, scalars.step));
  const auto t = static_cast<float>(scalars.updates + 1);
  for (int i = 0; i < kMaxAdamGroups; ++i) {
    const AdamHyper& from = hyper.adam[i];
    StepScalars::Adam& to = scalars.adam[i];
    to.lr = static_cast<float>(from.lr * multiplier);
    to.beta1 = static_cast<float>(from.beta1);
    to.beta2 = static_cast<float>(from.beta2);
    to.eps = static_cast<float>(from.eps);
    to.weight_decay = static_cast<float>(from.weight_decay);
    to.correction1 = 1.0F - powf(to.beta1, t);
    to.correction2 = 1.0F - powf(to.beta2, t);
  }
}

// fill_step_scalars on the device; the first node of a step's graph.
struct AdvanceStepArgs {
  Tensor scalars;  // StepScalars, in-out
  Tensor hyper;    // HyperParameters
};
void advance_step(Stream& stream, const AdvanceStepArgs& args);

// ++step; updates += commit. The last node of a step's graph.
struct FinishStepArgs {
  Tensor scalars;  // StepScalars, in-out
};
void finish_step(Stream& stream, const FinishStepArgs& args);

}  // namespace muo
