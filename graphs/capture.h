#pragma once

#include <functional>

#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/tracing_rank.h"

namespace muo::graphs {

// Applies `plan(arena, traces)` to a trace of the state that `make(RankContext&, Arena&)` returns
// (a pointer to an object with capture() and traces()), for `rank` of `world`. Works on any
// machine: nothing is allocated or run.
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

// Prepares `state`, whose tensors are in `arena` and still empty, to run; captures its graphs if
// `capture`. On a GPU all calls run twice before: libraries then load their kernels and choose
// algorithms, and peers connect, none of which is allowed during a capture. Collectives are muted
// the first time, as loading a kernel may wait for a GPU on which a peer's collective waits for
// this rank. Every rank calls it, after all its memory was allocated, as an allocation may wait
// likewise. `between` runs once per process, between the two passes.
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
