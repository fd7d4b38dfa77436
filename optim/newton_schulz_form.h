#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/tensor.h"

namespace muo::optim {

// Ways to compute the same iteration: equal but for rounding. n = min(R, C), m = max(R, C).
struct NewtonSchulzForm {
  std::string_view name;     // of --newton-schulz
  std::string_view summary;  // one line
  bool symmetric = false;    // of symmetric results only a triangle is computed
  // How many steps of a matrix that is not square go on between two products with all of it. From
  // one Gram matrix A = x x^T, they iterate on matrices of (n, n) alone: p(A) = a + b A + c A A of
  // a step, the product of these so far, and the next A, which is p(A) A p(A). That product and x
  // give the next x. In infinite precision one would do for all steps; rounding makes the smallest
  // eigenvalues of A negative, and each step without a fresh A multiplies them by up to a^2.
  int steps_per_gram = 1;
  bool merged = false;  // tall matrices are transposed into a stack with wide ones
};

// The default first.
std::span<const NewtonSchulzForm> newton_schulz_forms();
// Throws InputError for an unknown name, with the known ones.
const NewtonSchulzForm& newton_schulz_form(std::string_view name);

// Steps of an iteration, unless a run says otherwise, and the most that it may ask for.
inline constexpr std::int64_t kNewtonSchulzSteps = 5, kMaxNewtonSchulzSteps = 12;

// FLOPs of so many steps for one matrix: 4 n^2 m + 2 n^3 each in the first form. Of a symmetric
// product of which a triangle is computed, half counts.
double newton_schulz_flops(const Shape& shape,
                           const NewtonSchulzForm& form = newton_schulz_forms().front(),
                           std::int64_t steps = kNewtonSchulzSteps);

}  // namespace muo::optim
