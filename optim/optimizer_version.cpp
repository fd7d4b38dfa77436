#include "optim/optimizer_version.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "optim/find_named.h"
#include "optim/newton_schulz_form.h"

namespace muo::optim {
namespace {

// All steps that a run may request: those of the iteration, then its last step repeated.
template <std::size_t N>
constexpr auto lengthened(const std::array<Quintic, N>& iteration) {
  std::array<Quintic, kMaxNewtonSchulzSteps> out{};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = iteration[std::min(i, N - 1)];
  return out;
}
constexpr auto kPolarSteps = lengthened(kPolarExpress), kFixedSteps = lengthened(kFixedQuintic);

constexpr std::array kVersions = {
    OptimizerVersion{.name = "head",
                     .iteration = kPolarSteps,
                     .normalisation = {.equilibrate = true, .factor = 1.01, .eps = 1e-6},
                     .beta2 = 0.9,
                     .momentum_peak = 0.97,
                     .momentum_end = 0.90,
                     .momentum_ramp = 400},
    OptimizerVersion{.name = "2026-01",
                     .iteration = kPolarSteps,
                     .normalisation = {.equilibrate = false, .factor = 1.02, .eps = 1e-6},
                     .unit_update = false,
                     .beta2 = 0.95,
                     .decay = OptimizerVersion::Decay::kLinear,
                     .momentum_peak = 0.95,
                     .momentum_end = 0.95,
                     .momentum_ramp = 300,
                     .adam_by_group = false},
    OptimizerVersion{.name = "2025-10",
                     .iteration = kFixedSteps,
                     .normalisation = {.equilibrate = false, .factor = 1, .eps = 1e-7},
                     .unit_update = false,
                     .factored_variance = false,
                     .decay = OptimizerVersion::Decay::kNone,
                     .momentum_peak = 0.95,
                     .momentum_end = 0.95,
                     .momentum_ramp = 300,
                     .adam_by_group = false},
};

}  // namespace

std::span<const Quintic> first_steps(const OptimizerVersion& version, std::int64_t steps) {
  MUO_CHECK(steps >= 1 && steps <= kMaxNewtonSchulzSteps, "steps is ", steps, ", expected 1 to ",
            kMaxNewtonSchulzSteps);
  return version.iteration.first(static_cast<std::size_t>(steps));
}

std::span<const OptimizerVersion> optimizer_versions() { return kVersions; }

const OptimizerVersion& optimizer_version(std::string_view name) {
  return find_named<OptimizerVersion>(kVersions, name, "--optimizer-spec");
}

}  // namespace muo::optim
