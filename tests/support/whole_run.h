#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graphs/run_state.h"
#include "trainer/run/run_config.h"

namespace muo::test {

// A training run with the real components (plan, memory plan, graphs, device group), but without
// data files, logs and checkpoints.
struct WholeRun {
  trainer::RunConfig config;  // options: strategy, graph and seed are used
  int steps = 0;
  std::optional<std::uint64_t> random_order = {};
  // Before each step, sets all bits of memory that keeps nothing between steps
  // (Lifespan::kStep), which is a NaN in every floating-point type, so that kernels that read
  // unwritten memory are detected.
  bool nan_between_steps = false;
  // Interrupts each step up to twice, at random points.
  bool interrupted = false;
  // Fills the seq_len + 1 tokens of global row g of a step. Called on every rank's thread.
  std::function<void(std::int64_t step, std::int64_t g, std::span<std::int32_t> row)> fill_row;
  // The number of micro-steps of a step; empty: those of the configuration.
  std::function<std::int64_t(int step)> micro_steps = {};
  // Called on every rank's thread after the initial weights are set, and before each step.
  std::function<void(RankContext&, graphs::RunState&)> started = {};
  std::function<void(RankContext&, graphs::RunState&, int step)> before_step = {};
};

struct RunCurves {
  std::vector<double> losses;      // per step, over the global batch
  std::vector<double> grad_norms;  // per step
  std::vector<std::int32_t> committed;
  std::vector<double> updates;  // roots of each step's UpdateSquares, if all steps are committed
  std::vector<float> weights;   // all parameters of rank 0's replica, concatenated
  int given_up = 0;             // number of interrupted steps
  std::int64_t allocations_while_running = 0;  // device allocations after start-up, all ranks
};

RunCurves run_whole(const WholeRun& run);

// All parameters of a rank's replica, concatenated, as fp32.
std::vector<float> replica_values(RankContext& rank, const graphs::RunState& state);

double median(std::vector<double> values);

// Root mean square of the difference of two curves.
double curve_distance(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace muo::test
