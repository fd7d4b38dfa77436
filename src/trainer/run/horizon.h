#pragma once

#include "trainer/run/run_config.h"

namespace muo::trainer {

// The parts of resolve() and continue_from() about a run's length. `run` is the run resolved so
// far.

// Sets the batches of a run of `iterations` steps, of which its shares are.
void set_batches(RunConfig& run, std::int64_t iterations);
// Sets the number of steps, in nanochat's precedence: explicit steps, then compute, then tokens per
// parameter, unless there is a time budget. Automatic steps are added to the steps already trained.
void set_iterations(RunConfig& run);
// Derives the learning rates and schedules from the run's batch and steps.
void set_hyper_parameters(RunConfig& run);

}  // namespace muo::trainer
