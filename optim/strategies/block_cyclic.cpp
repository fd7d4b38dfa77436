#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// nanochat's first DistMuon: the matrices of one shape in blocks of `world`, matrix i of a block at
// rank i; in the last block the ranks without a matrix get zeros.
// Cost: sends 2 (N-1)/N of the padded matrices; ranks without a matrix in a shape's last block
// wait, and Newton-Schulz has one matrix at a time. Use it with many matrices of each shape, and
// for reductions that start early, as a block is a few layers.
Buckets block_cyclic(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  for (const Members& alike : by_shape(params))
    for (const Members& block : blocks_of(alike, static_cast<std::size_t>(world)))
      buckets.push_back(owned_bucket(params, block, one_each(block), world));
  return buckets;
}

}  // namespace muo::optim::strategies
