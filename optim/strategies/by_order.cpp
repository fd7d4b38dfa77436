#include <algorithm>

#include "optim/strategies/strategies.h"

// Strategies that deal out matrices in a fixed order, without comparing costs.
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

// Every rank holds and computes everything, including AdamW's part; one all-reduce of the
// gradients. Buckets of about equal bytes in backward order.
// Cost: sends 2 (N-1)/N of the gradients, computes N times what is needed, and every rank holds all
// optimizer state. Use it for a model that is small relative to its activations, or as the
// reference.
Buckets ddp(Params params, int world) {
  Buckets buckets;
  for (const UpdateRule rule : {UpdateRule::kMuon, UpdateRule::kAdamW})
    for (const NumberClass kind :
         {NumberClass::kMatrix, NumberClass::kEmbedding, NumberClass::kScalar}) {
      Members members;
      for (std::size_t i = 0; i < params.size(); ++i)
        if (update_group(params[i].role).rule == rule && number_class(params[i].role) == kind)
          members.push_back(i);
      for (const Members& run : runs_of_bytes(params, backward_order(params, std::move(members))))
        buckets.push_back(replicated_bucket(params, run, world));
    }
  return buckets;
}

}  // namespace muo::optim::strategies
