#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/muon.h"

namespace muo::optim {

// x <- a x + (b A + c A A) x with A = x x^T: a step of a quintic Newton-Schulz iteration.
struct Quintic {
  double a, b, c;
};

// Five steps that take singular values in [1e-3, 1] to within 15% of 1 (docs/spec/optimizer.md,
// "Newton-Schulz"; "The Polar Express", Amsel et al. 2025).
inline constexpr std::array<Quintic, 5> kPolarExpress = {{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};
// Jordan's iteration, which repeats one step five times. It takes singular values to within about
// 30% of 1, except small ones, which it takes less far.
inline constexpr std::array<Quintic, 5> kFixedQuintic = {{
    {3.4445, -4.7750, 2.0315},
    {3.4445, -4.7750, 2.0315},
    {3.4445, -4.7750, 2.0315},
    {3.4445, -4.7750, 2.0315},
    {3.4445, -4.7750, 2.0315},
}};

// nanochat's optimizer at a point in time (docs/spec/optimizer.md, "Versions"): Muon around and
// inside the iteration, and the constants that no option sets.
struct OptimizerVersion {
  std::string_view name;               // value of --optimizer-spec
  std::span<const Quintic> iteration;  // kMaxNewtonSchulzSteps steps
  MuonNormalisation normalisation = {};
  bool unit_update = true;        // Muon+: scale the update to norm sqrt(min(R, C))
  bool factored_variance = true;  // NorMuon
  double beta2 = 0;               // decay of the variance
  // Schedule of the cautious weight decay, to zero.
  enum class Decay { kNone, kLinear, kCosine } decay = Decay::kCosine;
  double momentum_peak = 0, momentum_end = 0;  // after momentum_ramp steps; after the warm-down
  int momentum_ramp = 0;
  bool adam_by_group = true;  // AdamW's beta2 and decay: by group (update_groups.h), or equal
};

// The first `steps` steps of the version's iteration; valid for the life of the program.
std::span<const Quintic> first_steps(const OptimizerVersion& version, std::int64_t steps);

// HEAD of 2026-07 (the default), 2026-01 and 2025-10.
std::span<const OptimizerVersion> optimizer_versions();
// Throws InputError for an unknown name, and lists the known ones.
const OptimizerVersion& optimizer_version(std::string_view name);

}  // namespace muo::optim
