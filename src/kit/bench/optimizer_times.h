#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/phase_clock.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "trainer/run/run_config.h"
#include "trainer/train/update_sizes.h"

namespace muo::kit {

// Times of a run's updates alone, on random gradients: all of ShardedStep without the model.
// Weights start at zero, because the time of an update does not depend on them.
struct OptimizerTimes {
  std::vector<double> seconds;     // duration of each step's update on the slowest rank
  std::vector<PhaseClock> update;  // by rank: sums over all steps, by UpdatePhase
  std::vector<PhaseClock> comm;    // by rank: sums over all steps, by CommPhase
  // Fingerprint of each parameter in rank 0's replica at the end.
  std::vector<std::int64_t> weights;
  trainer::UpdateSizes sizes;  // sizes of the last update
};

// Measures `steps` updates after one for warm-up, replayed or eager depending on
// config.options.capture.graph. Throws Error unless every step was committed and changed every
// weight.
OptimizerTimes measure_optimizer(const trainer::RunConfig& config, std::int64_t steps);

// Enqueues the generation of a rank's random gradients. Every parameter's gradient is a prefix of
// `gradients`.
void draw_gradients(Stream& stream, std::uint64_t seed, int rank, const Tensor& gradients);

// A row of `muograph bench optimizer`.
struct OptimizerRow {
  std::string strategy;
  OptimizerTimes times;
};

std::string optimizer_table(const trainer::RunConfig& config, std::span<const OptimizerRow> rows);
nlohmann::ordered_json optimizer_json(const trainer::RunConfig& config,
                                      std::span<const OptimizerRow> rows);

}  // namespace muo::kit
