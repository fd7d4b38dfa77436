#pragma once

#include <functional>

#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/tracing_rank.h"

namespace muo::graphs {

// What memory `rank` of `world` needs for a state that `make(RankContext&, Arena&)` builds (a
// pointer to something with capture() and traces()), on any machine: nothing is allocated or run.
template <class Make, class Plan>
auto traced(int rank, int world, const Make& make, const Plan& plan) {
  TracingRank trace(rank, world);
  TraceArena arena(rank);
  const auto state = make(trace.context(), static_cast<Arena&>(arena));
  state->capture();
  const auto traces = state->traces();
  return plan(arena, traces);
}
template <class Make>
MemoryPlan traced_plan(int rank, int world, const Make& make) {
  return traced(rank, world, make, [](const TraceArena& arena, const auto& traces) {
    return plan_memory(arena, traces);
  });
}

// Gets `state`, whose tensors lie in `arena` and hold nothing yet, ready to run; captures its
// graphs if `capture`. On a GPU every call runs twice before: that is when libraries load their
// kernels and choose algorithms and when peers connect, which no capture may hold. The first time
// collectives are muted, since loading a kernel may wait for a GPU on which a peer's collective
// waits for this rank. Every rank calls it, once all its memory is there: neither may an allocation
// wait so. `between` runs once in each process, between the two times.
template <class State>
void warm_up_and_capture(RankContext& rank, PlannedArena& arena, State& state, bool capture = true,
                         const std::function<void()>& between = {}) {
  if (!rank.compute.is_host()) {
    rank.barrier.arrive({}, "before the warm-up");
    rank.progress.enter("the warm-up");
    rank.communicator.mute(true);
    state.warm_up();
    rank.communicator.mute(false);
    rank.wait(rank.compute);
    rank.barrier.arrive(between, "between the warm-up's passes");
    state.warm_up();
    arena.zero(rank.compute);
    rank.wait(rank.compute);
    rank.barrier.arrive({}, "after the warm-up");
  }
  if (!capture) return;
  rank.progress.enter("the capture of its graphs");
  state.capture();
}

}  // namespace muo::graphs
