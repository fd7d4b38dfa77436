#pragma once

#include <cstdint>
#include <span>

#include "optim/sharded_step.h"
#include "runtime/device_group.h"

namespace muo::graphs {

// Fills the masters of `update` with the initial weights of `seed` (docs/spec/model.md, "Initial
// weights"), and the replicas: on the device. Every rank calls it; waits.
void initialize_weights(const RankContext& rank, std::uint64_t seed,
                        std::span<const ParamSpec> params, optim::ShardedStep& update);

}  // namespace muo::graphs
