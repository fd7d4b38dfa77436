#pragma once

#include <cstdint>
#include <vector>

#include "app/report/operation_times.h"
#include "app/train/run_config.h"
#include "kernels/phase_clock.h"
#include "optim/sharding_plan.h"

namespace muo {

// What whole training steps of a run cost, on random tokens.
struct StepTimes {
  double step = 0;  // seconds: mean of steps that follow each other, until the slowest rank is done
  // By rank: seconds in which its host enqueues a step, the median; 0 on a host, which computes it.
  std::vector<double> launch;
  // Only if config.timed_steps: by rank, of all steps; and of all ranks and steps together, in
  // graphs of a host, else empty.
  std::vector<PhaseClock> clocks;
  std::vector<OperationTime> operations;
};

// Runs steps one by one for `launch`, then `steps` more for the rest, as training does: the host is
// at most one step ahead. config.options.capture.graph: replayed, or the same calls eagerly.
StepTimes measure_steps(const RunConfig& config, std::int64_t steps);

}  // namespace muo
