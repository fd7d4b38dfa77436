#pragma once

#include "kernels/cuda/gemm_problem.h"
#include "runtime/stream.h"

namespace muo::cuda {

// d <- alpha op(a) op(b) + beta c, where the problem has c.
struct GemmOperands {
  const void* a;
  const void* b;
  const void* c;  // d where the problem has none
  void* d;
  float alpha, beta;
};

// By cuBLASLt, in the same way whenever the problem is the same. Its k is above 0.
void run_problem(NativeStream stream, const GemmProblem& problem, const GemmOperands& operands);

}  // namespace muo::cuda
