#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

inline constexpr int kMaxAdamGroups = 8;

// One AdamW group: constants of the run.
struct AdamHyper {
  double lr = 0;  // initial; the step's is lr * lr_multiplier
  double beta1 = 0, beta2 = 0;
  double eps = 0;
  double weight_decay = 0;  // not scheduled
};

// Everything of the optimizer that a run, or a run of a sweep, may set: the schedules as data. In
// device memory; changing it needs no new capture. make_hyper_parameters() fills it.
struct HyperParameters {
  std::int64_t iterations = 1;  // N, the horizon of the schedules
  std::int64_t warmup_steps = 0;
  std::int64_t warmdown_steps = 0;  // W = rint(warmdown_ratio * N), half to even
  double final_lr_frac = 0;
  double matrix_lr = 0;          // Muon's, initial
  double muon_beta2 = 0;         // NorMuon's factored variance
  double muon_weight_decay = 0;  // initial; to zero along a cosine, or a line
  std::int64_t linear_weight_decay = 0;
  double muon_momentum_start = 0, muon_momentum_peak = 0, muon_momentum_end = 0;
  std::int64_t muon_momentum_ramp = 1;  // steps from start to peak
  std::int64_t muon_nesterov = 1;       // 0: plain momentum
  AdamHyper adam[kMaxAdamGroups] = {};
  // Of the numerics guard (kernels/commit.h); 0 turns each off.
  double max_grad_norm = 0;        // above it gradients are scaled down to it
  double outlier_deviations = 0;   // an outlier is so many standard deviations above the mean
  std::int64_t skip_outliers = 0;  // 1: their updates are not committed
};

enum class Verdict : std::int32_t { kOrdinary, kOutlier, kNotFinite };

// What this step uses; every optimizer kernel reads it on the device. State is `step` and `updates`
// only (both are saved in checkpoints); the rest is recomputed from them by advance_step.
struct StepScalars {
  std::int64_t step = 0;     // consumed batches; the schedules' position
  std::int64_t updates = 0;  // committed updates; Adam's t is updates + 1
  // As every rank decided from the same totals (kernels/commit.h):
  std::int32_t commit = 0;  // 1: state and weights are written
  Verdict verdict = Verdict::kOrdinary;
  float gradient_scale = 1;  // clipping: what commits read is gradient * this
  float loss_deviations = 0, norm_deviations = 0;
  float lr_multiplier = 0;
  float muon_momentum = 0;
  float muon_look_ahead = 0;  // weight of the momentum in Muon's input: Nesterov's, or 1
  float muon_beta2 = 0;
  double matrix_lr =
      0;  // double: each shape multiplies sqrt(max(1, rows / columns)) before rounding
  float muon_weight_decay = 0;
  struct Adam {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2;  // 1 - beta^t, in fp32 as nanochat computes them
  } adam[kMaxAdamGroups] = {};
};

// The schedules of nanochat's base_train.py (docs/spec/optimizer.md, "Schedules"), in double. `it`
// is the 0-based step; beyond the horizon the final values hold. Inline, so that every backend's
// kernel and the logger evaluate the same code.
MUO_HOST_DEVICE inline double lr_multiplier_at(const HyperParameters& hyper, std::int64_t it) {
  if (it < hyper.warmup_steps)
    return static_cast<double>(it + 1) / static_cast<double>(hyper.warmup_steps);
  const std::int64_t left = hyper.iterations - it;
  if (left >= hyper.warmdown_steps) return 1.0;
  const double p =
      left > 0 ? static_cast<double>(left) / static_cast<double>(hyper.warmdown_steps) : 0.0;
  return p + (1.0 - p) * hyper.final_lr_frac;
}

MUO_HOST_DEVICE inline double muon_momentum_at(const HyperParameters& hyper, std::int64_t it) {
  if (it < hyper.muon_momentum_ramp) {  // first: in a short run the ramp wins over the warmdown
    const double p = static_cast<double>(it) / static_cast<double>(hyper.muon_momentum_ramp);
    return (1.0 - p) * hyper.muon_momentum_start + p * hyper.muon_momentum_peak;
  }
  const std::int64_t into = it - (hyper.iterations - hyper.warmdown_steps);
  if (into < 0) return hyper.muon_momentum_peak;
  const double p = into < hyper.warmdown_steps
                       ? static_cast<double>(into) / static_cast<double>(hyper.warmdown_steps)
                       : 1.0;
  return hyper.muon_momentum_peak * (1.0 - p) + hyper.muon_momentum_end * p;
}

MUO_HOST_DEVICE inline double muon_weight_decay_at(const HyperParameters& hyper, std::int64_t it) {
  if (it >= hyper.iterations) return 0.0;
  constexpr double kPi = 3.14159265358979323846;
  const double p = static_cast<double>(it) / static_cast<double>(hyper.iterations);
  if (hyper.linear_weight_decay != 0) return hyper.muon_weight_decay * (1.0 - p);
  return hyper.muon_weight_decay * 0.5 * (1.0 + cos(kPi * p));
}

// All of a step's scalars from `step` and `updates`.
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

// First node of a step's graph: fill_step_scalars on the device.
struct AdvanceStepArgs {
  Tensor scalars;  // StepScalars, in-out
  Tensor hyper;    // HyperParameters
};
void advance_step(Stream& stream, const AdvanceStepArgs& args);

// Last: ++step; updates += commit.
struct FinishStepArgs {
  Tensor scalars;  // StepScalars, in-out
};
void finish_step(Stream& stream, const FinishStepArgs& args);

}  // namespace muo
