#pragma once

#include <gtest/gtest.h>

#include "support/attention_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {

inline double attention_distance(const HostTensor& got, const AttentionReference::Result& want) {
  return worst_element<double>(got.doubles(), want.value, want.magnitude);
}

// In bf16, out and dv have two roundings: of the probabilities and of the stored result. dq and dk
// have roundings of dS and of the stored result, and both roundings of the `out` in dot(dout, out).
struct AttentionTolerance {
  AttentionTolerance(const AttentionReference& want, const AttentionCase& c, DType dtype)
      : in_fp32(want.tolerance(c)), unit(dtype == DType::kBF16 ? kUnitBF16 : 0.0) {}

  double in_fp32, unit;
  double out = (in_fp32 + unit) * (1 + unit) + unit;
  double gradient = unit > 0 ? (in_fp32 + out + unit) * (1 + unit) + unit : in_fp32;
};

inline void expect_matches(const AttentionCase& c, DType dtype = DType::kF32,
                           AttentionKernels forward = AttentionKernels::kAuto,
                           AttentionKernels backward = AttentionKernels::kAuto) {
  SCOPED_TRACE(testing::PrintToString(c));
  AttentionProblem p(c, dtype);
  p.forward = forward;
  p.backward = backward;
  p.run();
  const AttentionReference want(p, c.window);
  const AttentionTolerance within(want, c, dtype);
  EXPECT_LT(attention_distance(p.out, want.out), within.out) << "out";
  EXPECT_LT(attention_distance(p.lse, want.lse), within.in_fp32) << "lse";
  EXPECT_LT(attention_distance(p.dq, want.dq), within.gradient) << "dq";
  EXPECT_LT(attention_distance(p.dk, want.dk), within.gradient) << "dk";
  EXPECT_LT(attention_distance(p.dv, want.dv), within.out) << "dv";
}

}  // namespace muo::test
