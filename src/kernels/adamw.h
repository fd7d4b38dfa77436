#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// AdamW as nanochat computes it (spec/optimizer 1.1), element-wise, if scalars.commit, else
// nothing: w *= 1 - lr wd; m = lerp(m, g, 1 - b1); v = lerp(v, g^2, 1 - b2);
// w -= (lr / c1) * m / (sqrt(v / c2) + eps). Scalars from scalars.adam[group]. Element-wise, so
// computing and committing are one kernel.
struct AdamwArgs {
  Tensor weight;   // (n) in-out, fp32 master
  Tensor m;        // (n) in-out
  Tensor v;        // (n) in-out
  Tensor grad;     // (n)
  Tensor scalars;  // StepScalars
  int group = 0;
};
void adamw(Stream& stream, const AdamwArgs& args);

}  // namespace muo
