#pragma once

#include <span>

#include "runtime/memory/memory_plan.h"
#include "runtime/stream.h"

namespace muo {

// Throws Error, naming tensor and node, if a node reads bytes of a kStep tensor that no earlier
// node of the graph has written (they hold garbage), or touches bytes beyond the end of any tensor
// of the arena. A write that also reads (Access) counts as a write.
void check_step_tensors(const TraceArena& arena, const GraphTrace& graph);

// Throws Error, naming both tensors and the node, if a graph that runs at the addresses of the plan
// would use a tensor again after another has taken bytes of it, or in no order with another; a
// kSeries tensor counts as used when the graph begins and when it ends, if it is used at all. It
// judges bytes and nodes, not the reasoning by which plan_memory() placed them.
void check_memory_plan(const MemoryPlan& plan, const TraceArena& arena,
                       std::span<const GraphTrace* const> graphs);

}  // namespace muo
