#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// dion's: matrices of one shape, `world` of them a bucket, each spread over all ranks by elements.
// One all-to-all makes matrix i whole at rank i, another takes the updates back.
// Cost: beside the 2 (N-1)/N of the matrices that owners of whole matrices cost, another
// 2 (N-1)/N^2 in two collectives a bucket to which every rank gives alike; the tail of each shape
// exchanges padding. When: gradients and weights are sharded by elements anyway, and there are
// many matrices of each shape.
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
