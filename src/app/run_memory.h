#pragma once

#include <cstdint>

#include "app/run_config.h"
#include "runtime/arena.h"

namespace muo {

// What one rank of this run will need: the traced arena of a rank's training step and evaluation.
// Ranks need the same to within their share of the sharded state; this is rank 0's.
MemoryPlan plan_run_memory(const RunConfig& config);

// Bytes that the system can give this process without swapping: MemAvailable of /proc/meminfo, less
// where a control group's limit leaves less.
std::int64_t available_memory();

// Throws InputError, with the numbers and the options to change, if plan.bytes do not fit into the
// `available` bytes of a rank.
void require_memory(const RunConfig& config, const MemoryPlan& plan, std::int64_t available);

}  // namespace muo
