#pragma once

#include "runtime/memory/arena.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/trace.h"

namespace muo {

// What memory `rank` of `world` needs for a state that `make(RankContext&, Arena&)` builds (a
// pointer to something with capture() and traces()), on any machine: nothing is allocated or run.
template <class Make>
MemoryPlan traced_plan(int rank, int world, const Make& make) {
  TracingRank trace(rank, world);
  TraceArena arena(rank);
  const auto state = make(trace.context(), static_cast<Arena&>(arena));
  state->capture();
  const auto traces = state->traces();
  return plan_memory(arena, traces);
}

}  // namespace muo
