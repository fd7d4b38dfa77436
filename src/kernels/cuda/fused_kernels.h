#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "runtime/stream.h"

// Products of bf16 with ReLU^2 in their epilogues, by CUTLASS 3, for GPUs of compute capability
// 9.0.
namespace muo::cuda {

struct FusedProblem {
  std::int64_t m = 0, n = 0, k = 0;  // kernels/fused_product.h; n and k are multiples of 8
  bool backward = false;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes part of it for a 0
  friend auto operator<=>(const FusedProblem&, const FusedProblem&) = default;
};
// Every address is a multiple of 16. y: of backward only.
struct FusedOperands {
  void* d;
  const void* a;
  const void* b;
  const void* y;
};

// Empty if the build has these kernels and they are for GPU `device`; else one line.
std::string fused_kernels_missing(int device);

// On GPU `device`, by a persistent kernel on so many of its multiprocessors: if others hold some of
// these, a part of the tiles comes after all others. Throws Error.
void run_fused(NativeStream stream, const FusedProblem& problem, const FusedOperands& operands,
               int device, int multiprocessors);

}  // namespace muo::cuda
