#pragma once

#include <gtest/gtest.h>

#include "support/attention_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace muo::test {

inline double attention_distance(const HostTensor& got, const AttentionReference::Result& want) {
  return worst_element<double>(got.doubles(), want.value, want.magnitude);
}

inline void expect_matches(const AttentionCase& c, DType dtype = DType::kF32,
                           AttentionKernels forward = AttentionKernels::kAuto,
                           AttentionKernels backward = AttentionKernels::kAuto) {
  SCOPED_TRACE(testing::PrintToString(c));
  AttentionProblem p(c, dtype);
  p.forward = forward;
  p.backward = backward;
  p.run();
  const AttentionReference want(p, c.window);
  const double in_fp32 = want.tolerance(c);
  // bf16: out and dv have two roundings, of the probabilities and of what is stored. dq and dk have
  // those of dS and of what is stored, and the two of the out that dot(dout, out) is taken of.
  const double unit = dtype == DType::kBF16 ? kUnitBF16 : 0.0;
  const double out_tolerance = (in_fp32 + unit) * (1 + unit) + unit;
  const double gradient_tolerance = (in_fp32 + out_tolerance + unit) * (1 + unit) + unit;
  EXPECT_LT(attention_distance(p.out, want.out), out_tolerance) << "out";
  EXPECT_LT(attention_distance(p.lse, want.lse), in_fp32) << "lse";
  EXPECT_LT(attention_distance(p.dq, want.dq), unit > 0 ? gradient_tolerance : in_fp32) << "dq";
  EXPECT_LT(attention_distance(p.dk, want.dk), unit > 0 ? gradient_tolerance : in_fp32) << "dk";
  EXPECT_LT(attention_distance(p.dv, want.dv), out_tolerance) << "dv";
}

}  // namespace muo::test
