#include "optim/newton_schulz_form.h"

#include <algorithm>
#include <array>
#include <string>

#include "optim/find_named.h"

namespace muo::optim {
namespace {

constexpr std::array kForms = {
    NewtonSchulzForm{.name = "plain", .summary = "full products, ignoring symmetry"},
    NewtonSchulzForm{
        .name = "symmetric", .summary = "one triangle of symmetric products", .symmetric = true},
    NewtonSchulzForm{.name = "gram",
                     .summary = "symmetric, and two steps per Gram matrix unless square",
                     .symmetric = true,
                     .steps_per_gram = 2},
    NewtonSchulzForm{.name = "merged",
                     .summary = "plain, with tall matrices transposed to join wide ones",
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

double newton_schulz_flops(const Shape& shape, const NewtonSchulzForm& form, std::int64_t steps) {
  const auto n = static_cast<double>(std::min(shape[0], shape[1]));
  const auto m = static_cast<double>(std::max(shape[0], shape[1]));
  const double half = form.symmetric ? 0.5 : 1.0;
  const std::int64_t steps_per_gram = shape[0] == shape[1] ? 1 : form.steps_per_gram;
  double flops = 0;
  for (; steps > 0; steps -= steps_per_gram) {
    const auto products = static_cast<double>(4 * std::min(steps, steps_per_gram) - 3);
    flops += (2.0 * half + 2.0) * n * n * m + products * 2.0 * half * n * n * n;
  }
  return flops;
}

}  // namespace muo::optim
