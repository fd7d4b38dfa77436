#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo {

// The default of torch.nn.functional.rms_norm: fp32's machine epsilon.
inline constexpr float kRmsNormEps = 1.1920929e-7F;

// y = x * rstd, rstd = 1 / sqrt(mean(x^2, last axis) + eps); no learned weight.
// Zhang & Sennrich 2019, "Root mean square layer normalization". y may be x. x and y have one
// dtype, fp32 or bf16.
struct RmsNormArgs {
  Tensor y;     // (n, c) out
  Tensor rstd;  // (n) out, fp32
  Tensor x;     // (n, c)
  float eps = kRmsNormEps;
};
void rms_norm(Stream& stream, const RmsNormArgs& args);

// dx <- [dx if accumulate] + rstd * (dy - y * mean(dy * y, last axis)). Needs y, not x, so the
// forward pass may overwrite x. Exact for eps > 0 too, because rstd includes eps. dx may be dy. dx,
// dy and y have one dtype, fp32 or bf16.
struct RmsNormBackwardArgs {
  Tensor dx;    // (n, c) out, or in-out if accumulate
  Tensor dy;    // (n, c)
  Tensor y;     // (n, c) forward output
  Tensor rstd;  // (n) fp32
  bool accumulate = false;
};
void rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args);

}  // namespace muo
