#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// Moonlight's distributed Muon (main-horse's "NS replication"): gradients, momentum and masters are
// divided by elements, also within a matrix; the Nesterov input is gathered, every rank computes
// all of Newton-Schulz and applies its own slice of the update.
// Cost: sends 3 (N-1)/N of the matrices, and computes N times what is needed; state is divided into
// exactly equal parts, whatever the shapes. Use it if Newton-Schulz is short relative to the step,
// or if shapes are so few and unequal that owners cannot be balanced.
Buckets ns_replicated(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  for (const Members& members : runs_of_bytes(params, backward_order(params, muon_members(params))))
    buckets.push_back(element_bucket(params, members, world));
  return buckets;
}

}  // namespace muo::optim::strategies
