#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// nanochat's DistMuonAdamW: all K matrices of one shape in one bucket, ceil(K / world) consecutive
// ones per rank: one reduce-scatter, one stacked Newton-Schulz and one all-gather per shape.
// Cost: sends 2 (N-1)/N of the padded matrices, up to N - 1 of each shape being padding; nothing is
// reduced before the last gradient of a shape, which is near the end of backward. Use it if N
// divides the number of matrices of each shape.
Buckets stacked(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  for (const Members& members : by_shape(params)) {
    const std::size_t chunk =
        (members.size() + static_cast<std::size_t>(world) - 1) / static_cast<std::size_t>(world);
    std::vector<int> owners;
    for (std::size_t i = 0; i < members.size(); ++i)
      owners.push_back(static_cast<int>(i / chunk));
    buckets.push_back(owned_bucket(params, members, owners, world));
    buckets.back().name = "all " + params[members.front()].shape.text();
  }
  return buckets;
}

}  // namespace muo::optim::strategies
