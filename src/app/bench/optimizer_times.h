#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/run/run_config.h"
#include "app/train/update_sizes.h"
#include "kernels/phase_clock.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace muo::app {

// What a run's updates cost alone, on random gradients: all of ShardedStep, and no model. Weights
// start from zero: what an update costs does not depend on them.
struct OptimizerTimes {
  std::vector<double> seconds;        // of each step: of the update, on the slowest rank's device
  std::vector<PhaseClock> update;     // by rank, of all steps, by UpdatePhase
  std::vector<PhaseClock> comm;       // by CommPhase
  std::vector<std::int64_t> weights;  // fingerprints of rank 0's replica at the end, by parameter
  UpdateSizes sizes;                  // of the last update
};

// One step to warm up, then `steps` more. config.options.capture.graph: replayed, or the same calls
// eagerly. Throws Error unless every step committed and moved every weight.
OptimizerTimes measure_optimizer(const RunConfig& config, std::int64_t steps);

// Enqueues: a rank's gradients begin with as many of these as they have elements.
void draw_gradients(Stream& stream, std::uint64_t seed, int rank, const Tensor& gradients);

// A line of `muograph bench optimizer`.
struct OptimizerRow {
  std::string strategy;
  OptimizerTimes times;
};

std::string optimizer_table(const RunConfig& config, std::span<const OptimizerRow> rows);
nlohmann::ordered_json optimizer_json(const RunConfig& config, std::span<const OptimizerRow> rows);

}  // namespace muo::app
