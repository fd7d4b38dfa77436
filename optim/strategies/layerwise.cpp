#include <algorithm>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {

// NVIDIA's layer-wise optimizer (Emerging-Optimizers, Megatron): whole layers, `world` per bucket,
// one per rank. Segments have the sizes of their layers, so each is reduced to its owner
// separately, and a gather of parts of different sizes publishes them.
// Cost: a reduction to an owner passes every byte of its layer through every rank, N/(N-1) of a
// reduce-scatter; ranks without a layer in the last bucket wait. Use it if layers are many and
// alike, and an update needs several matrices of a layer at once.
Buckets layerwise(Params params, int world) {
  Buckets buckets = sharded_adamw(params, world);
  const std::vector<Members> layers = layers_backward(params);
  const auto count = static_cast<std::size_t>(world);
  for (std::size_t begin = 0; begin < layers.size(); begin += count) {
    Members members;
    std::vector<int> owners;
    for (std::size_t l = begin; l < std::min(begin + count, layers.size()); ++l) {
      members.insert(members.end(), layers[l].begin(), layers[l].end());
      owners.resize(members.size(), static_cast<int>(l - begin));
    }
    buckets.push_back(owned_bucket(params, members, owners, world, Segments::kOwnSize));
    buckets.back().reduction = Reduction::kReduceToOwner;
    buckets.back().publish = Publish::kAllGatherV;
  }
  return buckets;
}

}  // namespace muo::optim::strategies
