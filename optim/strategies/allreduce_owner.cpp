#include <algorithm>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// Keller Jordan's Muon, and the toy version of NVIDIA's layer-wise optimizer: gradients are
// all-reduced as in DDP, each rank updates one of every `world` matrices in the order of their
// sizes, and a gather of parts of different sizes publishes them.
// Cost: sends 3 (N-1)/N of the gradients, 1.5 times a reduce-scatter, and reduced gradients stay
// whole on every rank. Use it on top of a DDP that all-reduces anyway.
Buckets allreduce_owner(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  Members order = muon_members(params);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return params[a].shape.numel() > params[b].shape.numel();
  });
  for (const Members& block : blocks_of(order, static_cast<std::size_t>(world))) {
    buckets.push_back(owned_bucket(params, block, one_each(block), world, Segments::kOwnSize));
    buckets.back().reduction = Reduction::kAllReduce;
    buckets.back().publish = Publish::kAllGatherV;
  }
  return buckets;
}

}  // namespace muo::optim::strategies
