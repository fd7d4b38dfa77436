#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "runtime/stream.h"

// bf16 products with ReLU^2 in their epilogues, by CUTLASS 3, for GPUs of compute capability 9.0.
namespace muo::cuda {

struct FusedProblem {
  std::int64_t m = 0, n = 0, k = 0;  // as in kernels/fused_product.h; n and k are multiples of 8
  bool backward = false;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
  friend auto operator<=>(const FusedProblem&, const FusedProblem&) = default;
};
// Every address must be a multiple of 16. y is used by backward only.
struct FusedOperands {
  void* d;
  const void* a;
  const void* b;
  const void* y;
};

// Empty if the build has these kernels and GPU `device` supports them; else one line.
std::string fused_kernels_missing(int device);

// Runs a persistent kernel on `multiprocessors` of GPU `device`. If other kernels occupy some of
// these, part of the tiles is computed after all others. Throws Error.
void run_fused(NativeStream stream, const FusedProblem& problem, const FusedOperands& operands,
               int device, int multiprocessors);

}  // namespace muo::cuda
