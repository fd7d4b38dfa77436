#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// As in dion: a bucket has `world` matrices of one shape, each sharded by elements over all ranks.
// One all-to-all collects matrix i at rank i, another returns the updates.
// Cost: in addition to the 2 (N-1)/N of the matrices that owners of whole matrices send, another 2
// (N-1)/N^2 in two collectives per bucket to which every rank contributes equally; the tail of each
// shape exchanges padding. Use it if gradients and weights are sharded by elements anyway, and
// there are many matrices of each shape.
Buckets all_to_all(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  for (const Members& alike : by_shape(params))
    for (const Members& block : blocks_of(alike, static_cast<std::size_t>(world))) {
      buckets.push_back(spread_bucket(params, block, one_each(block), world));
      buckets.back().exchange = Exchange::kAllToAll;
      buckets.back().returns = Return::kAllToAll;
    }
  return buckets;
}

}  // namespace muo::optim::strategies
