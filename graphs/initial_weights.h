#pragma once

#include <cstdint>
#include <span>

#include "optim/sharded_step.h"
#include "runtime/device_group.h"

namespace muo {

// init_parameter() of elements [begin, begin + count), on several threads: the same bits.
void draw_parameter(const ParamSpec& spec, std::uint64_t seed, std::int64_t begin,
                    std::int64_t count, float* values, int threads);

// Fills the masters of `update` with the initial weights of `seed`, and the replicas. Draws on the
// rank's share of the cores, chunk by chunk, so that it needs little memory. Every rank calls it;
// waits.
void initialize_weights(const RankContext& rank, std::uint64_t seed,
                        std::span<const ParamSpec> params, ShardedStep& update);

}  // namespace muo
