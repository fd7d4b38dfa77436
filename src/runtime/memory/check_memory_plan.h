#pragma once

#include <span>

#include "runtime/memory/memory_plan.h"
#include "runtime/stream.h"

namespace muo {

// Throws Error, naming tensor and node, if a node reads bytes of a kStep tensor that no earlier
// node of the graph has written (they are undefined), or accesses bytes beyond the end of any
// tensor of the arena. A write that also reads (Access) counts as a write.
void check_step_tensors(const TraceArena& arena, const GraphTrace& graph);

// Throws Error, naming both tensors and the node, if a graph that runs at the plan's addresses
// would use a tensor after another one has overwritten some of its bytes, or if nothing orders the
// two uses. A kSeries tensor that is used at all counts as used at the beginning and the end of the
// graph. The check works on bytes and nodes, independently of plan_memory()'s algorithm.
void check_memory_plan(const MemoryPlan& plan, const TraceArena& arena,
                       std::span<const GraphTrace* const> graphs);

}  // namespace muo
