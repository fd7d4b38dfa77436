#pragma once

#include <optional>

#include "base/stochastic_rounding.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// AdamW as nanochat computes it (docs/spec/optimizer.md, "AdamW"), element-wise, if scalars.commit,
// else nothing: w *= 1 - lr wd; m = lerp(m, g, 1 - b1); v = lerp(v, g^2, 1 - b2);
// w -= (lr / c1) * m / (sqrt(v / c2) + eps), where g = grad * scalars.gradient_scale. Other scalars
// from scalars.adam[group]. Element-wise, so computing and committing are one kernel. Inside
// everything is fp32; moments of bf16 are rounded as they are stored, m by the first and v by the
// second of an element's two roundings (RoundingNoise at scalars.updates), or both to nearest.
struct AdamwArgs {
  Tensor weight;        // (n) in-out, fp32 master; or uint16, of a split one the lower half
  Tensor replica = {};  // (n) out, bf16: the new weight rounded, where forward reads another
                        // tensor; of a split master (base/split_float.h) the upper half, in-out
  Tensor m;             // (n) in-out, fp32 or bf16
  Tensor v;             // (n) in-out, as m
  Tensor grad;          // (n) fp32 or bf16, widened as it is read
  Tensor scalars;       // StepScalars
  int group = 0;
  std::optional<StochasticRounding> rounding = {};  // of bf16 moments; absent: to nearest
  Tensor squares = {};                              // as MuonCommitArgs::squares
};
void adamw(Stream& stream, const AdamwArgs& args);

}  // namespace muo
