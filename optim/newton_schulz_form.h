#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/tensor.h"

namespace muo::optim {

// Variants of computing the same iteration, which are equal except for rounding. n = min(R,
// C), m = max(R, C).
struct NewtonSchulzForm {
  std::string_view name;     // value of --newton-schulz
  std::string_view summary;  // one line
  bool symmetric = false;    // compute only one triangle of symmetric results
  // Number of steps per Gram matrix A = x x^T, for matrices that are not square. These steps work
  // only on (n, n) matrices: p(A) = a + b A + c A A of a step, the product of the p(A) so far, and
  // the next A, which is p(A) A p(A). Finally, that product times x gives the next x. In exact
  // arithmetic, one Gram matrix would be enough for all steps; but rounding makes the smallest
  // eigenvalues of A negative, and each step without a fresh A multiplies them by up to a^2.
  int steps_per_gram = 1;
  bool merged = false;  // transpose tall matrices into a stack with wide ones
};

// The default comes first.
std::span<const NewtonSchulzForm> newton_schulz_forms();
// Throws InputError for an unknown name, and lists the known ones.
const NewtonSchulzForm& newton_schulz_form(std::string_view name);

// Default and maximum number of steps of an iteration.
inline constexpr std::int64_t kNewtonSchulzSteps = 5, kMaxNewtonSchulzSteps = 12;

// FLOPs of `steps` steps for one matrix: 4 n^2 m + 2 n^3 each in the plain form. A symmetric
// product of which only one triangle is computed counts half.
double newton_schulz_flops(const Shape& shape,
                           const NewtonSchulzForm& form = newton_schulz_forms().front(),
                           std::int64_t steps = kNewtonSchulzSteps);

}  // namespace muo::optim
