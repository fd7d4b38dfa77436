#pragma once

#include <cstdint>

#include "kernels/step_scalars.h"

namespace muo {

// Decides whether a step's update is committed. All ranks come to the same decision, because they
// decide from the same totals (decision compute-then-commit).

// The totals of a step: (kRankIndices + world) fp64, summed over ranks.
inline constexpr std::int64_t kLossTotal = 0;
inline constexpr std::int64_t kSquaresTotal = 1;  // sum of squares of the reduced gradients
// Index of the first of `world` elements. Each rank writes only its own: 0, or kNoIndex - index of
// the first non-finite value among those that the rank holds.
inline constexpr std::int64_t kRankIndices = 2;
inline constexpr double kNoIndex = 9007199254740992.0;  // 2^53: fp64 represents all integers below

inline constexpr double kLargestSquares = 3.4028234663852886e38;  // the largest fp32
// True if x is finite and its square fits into fp32.
MUO_HOST_DEVICE inline bool has_square(float x) {
  return static_cast<double>(x) * static_cast<double>(x) <= kLargestSquares;
}

// Mean and variance of the observed values. The first kWindow values are equally weighted; later,
// weights decay by 1 - 1 / kWindow per step.
struct RunningMoments {
  static constexpr std::int64_t kWindow = 128;
  std::int64_t count = 0;
  double mean = 0;
  double variance = 0;
};

// The statistics by which outliers are detected. They are state of a run: kept in device memory,
// and saved in checkpoints.
struct LossStatistics {
  RunningMoments loss;
  RunningMoments grad_norm;
};

// Returns by how many standard deviations `x` exceeds the mean of the previous values (0 until
// there are kWindow of them), then adds x.
MUO_HOST_DEVICE inline double observe(RunningMoments& moments, double x) {
  const double delta = x - moments.mean;
  const double deviations = moments.count >= RunningMoments::kWindow && moments.variance > 0
                                ? delta / sqrt(moments.variance)
                                : 0.0;
  if (moments.count < RunningMoments::kWindow) ++moments.count;
  const double weight = 1.0 / static_cast<double>(moments.count);
  moments.mean += weight * delta;
  moments.variance = (1.0 - weight) * (moments.variance + weight * delta * delta);
  return deviations;
}

// Fills verdict, commit, deviations and gradient_scale. A gradient whose squares do not fit into
// fp32 counts as non-finite, because AdamW's second moment would stay infinite for ever.
MUO_HOST_DEVICE inline void decide(const HyperParameters& hyper, const double* totals,
                                   std::int64_t count, LossStatistics& statistics,
                                   StepScalars& scalars) {
  const double loss = totals[kLossTotal];
  const double squares = totals[kSquaresTotal];
  bool finite = loss - loss == 0.0 && squares <= kLargestSquares;
  for (std::int64_t i = kRankIndices; i < count; ++i)
    finite = finite && totals[i] == 0.0;
  scalars.loss_deviations = scalars.norm_deviations = 0;
  scalars.gradient_scale = 1;
  scalars.commit = 0;
  scalars.verdict = Verdict::kNotFinite;
  if (!finite) return;
  const double norm = sqrt(squares);
  const double loss_deviations = observe(statistics.loss, loss);
  const double norm_deviations = observe(statistics.grad_norm, norm);
  const double limit = hyper.outlier_deviations;
  const bool outlier = limit > 0 && (loss_deviations > limit || norm_deviations > limit);
  scalars.loss_deviations = static_cast<float>(loss_deviations);
  scalars.norm_deviations = static_cast<float>(norm_deviations);
  scalars.verdict = outlier ? Verdict::kOutlier : Verdict::kOrdinary;
  scalars.commit = outlier && hyper.skip_outliers != 0 ? 0 : 1;
  if (hyper.max_grad_norm > 0 && norm > hyper.max_grad_norm)
    scalars.gradient_scale = static_cast<float>(hyper.max_grad_norm / norm);
}

// decide() on the device, enqueued after the all-reduce of the totals.
struct AgreeCommitArgs {
  Tensor scalars;     // StepScalars, in-out
  Tensor statistics;  // LossStatistics, in-out
  Tensor hyper;       // HyperParameters
  Tensor totals;      // (kRankIndices + world) fp64
};
void agree_commit(Stream& stream, const AgreeCommitArgs& args);

// found <- max(found, kNoIndex - (base + i * stride)) for the first i at which has_square(x[i]) is
// false; unchanged if there is no such i. `squares`, if given, is the sum_squares of x, or of x and
// other tensors together; if it fits into fp32, x is not read.
struct NoteNonfiniteArgs {
  Tensor found;         // () fp64, in-out; initially 0
  Tensor x;             // any shape, fp32 or bf16
  Tensor squares = {};  // () fp64
  std::int64_t base = 0;
  std::int64_t stride = 1;
};
void note_nonfinite(Stream& stream, const NoteNonfiniteArgs& args);

}  // namespace muo
