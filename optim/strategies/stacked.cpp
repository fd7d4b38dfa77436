#include <map>

#include "optim/strategies/strategies.h"

namespace muo::strategies {

// nanochat's: all K matrices of one shape in one bucket, ceil(K / world) consecutive ones a rank.
Buckets stacked(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  std::map<std::vector<std::int64_t>, Members> by_shape;
  for (const std::size_t i : muon_members(params))
    by_shape[{params[i].shape[0], params[i].shape[1]}].push_back(i);
  for (const auto& entry : by_shape) {
    const Members& members = entry.second;
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

}  // namespace muo::strategies
