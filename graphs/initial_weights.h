#pragma once

#include <cstdint>
#include <span>

#include "optim/sharded_step.h"
#include "runtime/device_group.h"

namespace muo::graphs {

// Sets the masters of `update` to the initial weights for `seed` (docs/spec/model.md, "Initial
// weights"), and then the replicas; all on the device. Every rank calls it; waits.
void initialize_weights(const RankContext& rank, std::uint64_t seed,
                        std::span<const ParamSpec> params, optim::ShardedStep& update);

}  // namespace muo::graphs
