#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "support/whole_run.h"

namespace muo::test {

// A small training run through the real parts (plan, memory plan, graphs, device group) on made-up
// data with structure to learn. The global batch is the same for every world that divides 60.
struct ToyTraining {
  int world = 1;
  std::string strategy = "balanced";
  bool graph = true;
  std::int64_t accumulation = 1;
  int steps = 20;
  std::uint64_t perturbation = 0;  // not 0: every initial weight moves by one ulp, up or down
  std::optional<std::uint64_t> random_order = {};
  std::int64_t first_step = 0;
  // Called on every rank's thread, before each step.
  std::function<void(RankContext&, RunState&, int step)> before_step = {};
};

using ToyCurves = RunCurves;

inline constexpr std::int64_t kTrainingRows = 60;  // per step
inline constexpr std::int64_t kTrainingSeqLen = 12;

RunConfig toy_config(const ToyTraining& run);
ToyCurves train(const ToyTraining& run);

// What agreement means where only the order of rounding differs (design decision 8): 4 times the
// median distance of 8 runs, perturbed by one ulp, from the unperturbed one.
struct Agreement {
  double losses = 0;
  double weights = 0;  // relative, Frobenius
};
Agreement agreement(const ToyTraining& run);

}  // namespace muo::test
