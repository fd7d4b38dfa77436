#pragma once

#include <span>

#include "app/run_config.h"
#include "optim/sharded_step.h"
#include "runtime/device_group.h"

namespace muo {

// Fills the masters of `update` with the run's initial weights, and the replicas. Every rank calls
// it; waits.
void initialize_weights(const RankContext& rank, const RunConfig& config,
                        std::span<const ParamSpec> params, ShardedStep& update);

}  // namespace muo
