#pragma once

#include <optional>

#include "base/stochastic_rounding.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// AdamW as nanochat computes it (docs/spec/optimizer.md, "AdamW"). If scalars.commit is 0, only
// `squares` is written. w *= 1 - lr wd; m = lerp(m, g, 1 - b1); v = lerp(v, g^2, 1 - b2);
// w -= (lr / c1) * m / (sqrt(v / c2) + eps), where g = grad * scalars.gradient_scale and the other
// scalars are those of scalars.adam[group]. The update is element-wise, so one kernel computes and
// commits it. All arithmetic is fp32. bf16 moments are rounded when they are stored: to nearest, or
// stochastically, m by the first and v by the second of the two roundings of an element
// (RoundingNoise at scalars.updates).
struct AdamwArgs {
  Tensor weight;        // (n) in-out: fp32 master, or uint16 lower half of a split master
                        // (base/split_float.h)
  Tensor replica = {};  // (n) bf16. fp32 master: out, the rounded new weight; absent if the forward
                        // pass reads the master. Split master: in-out, the weight's upper half
  Tensor m;             // (n) in-out, fp32 or bf16
  Tensor v;             // (n) in-out, as m
  Tensor grad;          // (n) fp32 or bf16, widened when read
  Tensor scalars;       // StepScalars
  int group = 0;
  std::optional<StochasticRounding> rounding = {};  // for bf16 moments; absent: rounded to nearest
  Tensor squares = {};                              // as MuonCommitArgs::squares
};
void adamw(Stream& stream, const AdamwArgs& args);

}  // namespace muo
