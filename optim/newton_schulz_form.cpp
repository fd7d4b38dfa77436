#include "optim/newton_schulz_form.h"

#include <algorithm>
#include <array>
#include <string>

#include "optim/find_named.h"

namespace muo::optim {
namespace {

constexpr std::array kForms = {
    NewtonSchulzForm{.name = "plain", .summary = "whole products of each matrix"},
    NewtonSchulzForm{
        .name = "symmetric", .summary = "of symmetric products a triangle", .symmetric = true},
    NewtonSchulzForm{.name = "gram",
                     .summary = "that, and two steps per Gram matrix where not square",
                     .symmetric = true,
                     .steps_per_gram = 2},
    NewtonSchulzForm{.name = "merged",
                     .summary = "plain, tall matrices transposed to join wide ones",
                     .merged = true},
    NewtonSchulzForm{.name = "gram_merged",
                     .summary = "gram and merged",
                     .symmetric = true,
                     .steps_per_gram = 2,
                     .merged = true},
};

}  // namespace

std::span<const NewtonSchulzForm> newton_schulz_forms() { return kForms; }

const NewtonSchulzForm& newton_schulz_form(std::string_view name) {
  return find_named<NewtonSchulzForm>(kForms, name, "--newton-schulz");
}

double newton_schulz_flops(const Shape& shape, const NewtonSchulzForm& form) {
  const auto n = static_cast<double>(std::min(shape[0], shape[1]));
  const auto m = static_cast<double>(std::max(shape[0], shape[1]));
  const double half = form.symmetric ? 0.5 : 1.0;
  const int steps_per_gram = shape[0] == shape[1] ? 1 : form.steps_per_gram;
  double flops = 0;
  for (int left = 5; left > 0; left -= steps_per_gram) {
    const int steps = std::min(left, steps_per_gram);
    flops += (2.0 * half + 2.0) * n * n * m + (4 * steps - 3) * 2.0 * half * n * n * n;
  }
  return flops;
}

}  // namespace muo::optim
