#pragma once

#include <cstdint>

#include "base/stochastic_rounding.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// nanochat's Muon except for the Newton-Schulz GEMMs, for a batch of `k` matrices of one shape (R,
// C), with long = max(R, C) and n = min(R, C). Step numbers refer to docs/spec/optimizer.md,
// "Muon"; the defaults are those of nanochat's HEAD. Only muon_commit writes state (decision
// compute-then-commit).
//
// lerp has PyTorch's two forms: a + w (b - a) for w < 0.5, else b - (b - a)(1 - w). Gradients are
// fp32 or bf16; bf16 is widened when it is read, so results are those of the same values in fp32.

// Lower bounds of a row's norm (MuonEq), of |u| (Muon+), and of NorMuon's variance and norm.
inline constexpr double kMuonRowFloor = 1e-6;
inline constexpr double kMuonUpdateFloor = 1e-6;
inline constexpr float kMuonVarianceFloor = 1e-10F;
inline constexpr double kMuonRescaleFloor = 1e-10;

// The factor by which the shape of a matrix scales its learning rate.
double muon_rate(std::int64_t rows, std::int64_t columns);  // sqrt(max(1, rows / columns))

// Steps 1 and 2 alone, element-wise, for matrices that are sharded by element: m' = lerp(momentum,
// grad, 1 - mu); x = lerp(grad, m', scalars.muon_look_ahead). The look-ahead is mu with Nesterov
// momentum, else 1.
struct MuonNesterovArgs {
  Tensor x;         // (n) out
  Tensor grad;      // (n), fp32 or bf16
  Tensor momentum;  // (n), fp32 or bf16
  Tensor scalars;   // StepScalars
};
void muon_nesterov(Stream& stream, const MuonNesterovArgs& args);

// The normalisation that gives the input of the iterations a spectral norm below 1.
struct MuonNormalisation {
  bool equilibrate = true;           // MuonEq: first scale all rows to one norm
  double factor = 1.01, eps = 1e-6;  // then x /= |x|_F * factor + eps
};

// Steps 1 to 5: x as in muon_nesterov; every row of x is scaled to the norm |x|_F / sqrt(R), with
// row norms clamped at 1e-6 (MuonEq); x /= |x|_F * factor + eps. In bf16, every intermediate is
// rounded where nanochat rounds it: the Nesterov input, a row's factor, the product with it, and
// the quotient by the norm. If gradient and momentum are zero, x = 0.
struct MuonInputArgs {
  Tensor x;              // (k, R, C) out, fp32 or bf16
  Tensor row_norms;      // (k, R) out, scratch: norms before scaling
  Tensor grad;           // (k, R, C), fp32 or bf16
  Tensor momentum = {};  // (k, R, C), fp32 or bf16; absent: grad is the Nesterov input
  Tensor scalars;        // StepScalars
  MuonNormalisation normalisation = {};
};
void muon_input(Stream& stream, const MuonInputArgs& args);

// Steps 7 to 9, after the iterations. u = x; u *= sqrt(n) / max(|u|_F, 1e-6) (Muon+); then NorMuon
// with norm preservation: q = mean(u^2) over the short side per index of the long side (R >= C: per
// row), s' = lerp(variance, q, 1 - beta2), z = 1 / sqrt(max(s', 1e-10)), u *= z * |u|_F /
// max(sqrt(sum(n q z^2)), 1e-10).
struct MuonScaleArgs {
  Tensor u;                 // (k, R, C) out, fp32
  Tensor x;                 // (k, R, C) fp32 or bf16; may be u if fp32
  Tensor new_variance;      // (k, long) out: s'
  Tensor variance;          // (k, long)
  Tensor scalars;           // StepScalars
  bool unit_update = true;  // false: without Muon+
};
void muon_scale(Stream& stream, const MuonScaleArgs& args);

// Steps 1 and 10. If scalars.commit is 0, only `squares` is written. With lr =
// float(scalars.matrix_lr * rate): weight -= lr u + lr wd weight [u weight >= 0]; momentum =
// lerp(momentum, grad * scalars.gradient_scale, 1 - mu); variance = new_variance. A bf16 momentum
// is rounded when it is stored, by the first of an element's roundings (RoundingNoise at
// scalars.updates). A rank that holds only elements of a matrix, or only its variance, leaves out
// the other tensors.
struct MuonCommitArgs {
  Tensor weight = {};                // (n) in-out, as AdamwArgs::weight
  Tensor replica = {};               // (n) out or in-out, as AdamwArgs::replica
  Tensor momentum = {};              // (n) in-out, fp32 or bf16
  Tensor variance = {};              // (l) in-out
  Tensor u = {};                     // (n)
  Tensor grad = {};                  // (n), fp32 or bf16
  Tensor new_variance = {};          // (l)
  Tensor scalars = {};               // StepScalars
  double rate = 1;                   // muon_rate of the whole matrix
  StochasticRounding rounding = {};  // for a bf16 momentum
  // (pieces, parts, 3) fp64 out, optional. The elements are divided into `pieces` equal pieces;
  // `squares` receives UpdateSquares (update_squares.h) for each of the commit_parts() of a piece,
  // or 0 if nothing is committed.
  Tensor squares = {};
};
void muon_commit(Stream& stream, const MuonCommitArgs& args);

}  // namespace muo
