#pragma once

#include "runtime/arena.h"
#include "runtime/device_group.h"

namespace muo {

// Captures the graphs of `state`, whose tensors lie in `arena` and hold nothing yet. On a GPU the
// same calls run once before: that is when CUDA loads kernels and when libraries choose algorithms
// and connect peers, which no capture may hold. Every rank calls it, once all its memory is there:
// a GPU whose kernels wait for a peer must not wait for an allocation of that peer.
template <class State>
void capture_graphs(RankContext& rank, PlannedArena& arena, State& state) {
  if (!rank.compute.is_host()) {
    rank.barrier.arrive({}, "before the warm-up");
    rank.progress.enter("the warm-up");
    state.warm_up();
    arena.zero(rank.compute);
    rank.wait(rank.compute);
    rank.barrier.arrive({}, "after the warm-up");
  }
  rank.progress.enter("the capture of its graphs");
  state.capture();
}

}  // namespace muo
