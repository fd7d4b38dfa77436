#pragma once

#include "kernels/norm.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// The residual stream between blocks, with learned weights (nanochat gpt.py: resid_lambdas,
// x0_lambdas, backout_lambda), fused with the norm that reads it:
//   mixed = alpha x + sign beta z;   y = rms_norm(mixed)
// The norm reads `mixed` as it is stored, i.e. rounded. alpha and beta are one fp32 each, on the
// device; an absent alpha counts as 1, an absent beta as 0. All (n, c) tensors have one dtype, fp32
// or bf16.
struct MixNormArgs {
  Tensor y;           // (n, c) out
  Tensor rstd;        // (n) out, fp32
  Tensor mixed = {};  // (n, c) out, may be x; absent: not kept
  Tensor x;           // (n, c)
  Tensor z = {};      // (n, c), given with beta
  Tensor alpha = {};  // (1)
  Tensor beta = {};   // (1)
  float sign = 1.0F;
  float eps = kRmsNormEps;
};
void mix_norm(Stream& stream, const MixNormArgs& args);

// The backward pass of mix_norm, fused. With d the gradient of `mixed`, in dx's dtype,
//   d = [dx if add_dx] + rstd * (dy - y * mean(dy * y, last axis)),
// it computes
//   dalpha <- [dalpha +] sum(d x);   dbeta <- [dbeta +] sign sum(d z)
//   dz <- [dz if add_dz] + sign beta d;   dx <- alpha d
// With alpha, y is recomputed from x and z, with the same bits as in the forward pass; without
// alpha, y is read. An absent alpha or beta has no gradient. Sums run in a fixed order.
struct MixNormBackwardArgs {
  Tensor dx;           // (n, c) out, or in-out if add_dx
  Tensor dz = {};      // (n, c), given with beta
  Tensor dy;           // (n, c)
  Tensor y = {};       // (n, c), given without alpha
  Tensor rstd;         // (n) fp32
  Tensor x = {};       // (n, c), given with alpha
  Tensor z = {};       // (n, c), given with beta
  Tensor alpha = {};   // (1)
  Tensor beta = {};    // (1)
  Tensor dalpha = {};  // (1) fp32, given with alpha
  Tensor dbeta = {};   // (1) fp32, given with beta
  float sign = 1.0F;
  bool add_dx = false;
  bool add_dz = false;
  bool accumulate = false;  // add to dalpha and dbeta
};
void mix_norm_backward(Stream& stream, const MixNormBackwardArgs& args);

// y += x, e.g. two gradients of one tensor.
struct AddArgs {
  Tensor y;  // any shape, in-out, fp32 or bf16
  Tensor x;
};
void add(Stream& stream, const AddArgs& args);

}  // namespace muo
