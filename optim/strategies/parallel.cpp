#include <algorithm>
#include <numeric>

#include "optim/strategies/strategies.h"

namespace muo::optim::strategies {
namespace {

Buckets chunks_of_world(Params params, const Members& order, int world,
                        const std::vector<int>& owners) {
  Buckets buckets = sharded_adamw(params, world);
  const auto count = static_cast<std::size_t>(world);
  std::size_t begin = 0;
  for (const Members& chunk : blocks_of(order, count)) {
    const auto first = owners.begin() + static_cast<std::ptrdiff_t>(begin);
    buckets.push_back(spread_bucket(
        params, chunk, {first, first + static_cast<std::ptrdiff_t>(chunk.size())}, world));
    buckets.back().exchange = Exchange::kGatherToOwner;
    buckets.back().returns = Return::kScatter;
    begin += chunk.size();
  }
  return buckets;
}

}  // namespace

// Motif's Parallel Muon: every matrix is spread over all ranks by elements, like fully sharded
// gradients and momentum. In chunks of `world` matrices, each matrix is gathered to one owner and
// computed there, and its update is scattered. The gather of the next chunk and the scatter of
// the previous chunk overlap with the current Newton-Schulz, because of their positions in the
// order of collectives.
// Matrices are sorted by descending FLOPs, so that those of a chunk are alike, and the longest
// matrix of each chunk goes to the rank with the least work so far. If weights are sharded too,
// matrices are in backward order instead: the gradients of only a few layers then exist at a time,
// and waits within a chunk overlap with the backward pass.
// Cost: in addition to the 2 (N-1)/N of the matrices that owners of whole matrices send, ranks send
// another 4 (N-1)/N^2 in gathers and scatters, one of each per matrix. Use it if gradients and
// weights are sharded by elements anyway.
Buckets parallel(Params params, int world, const NewtonSchulzForm& form, Shard shard) {
  const auto flops = [&](std::size_t i) { return newton_schulz_flops(params[i].shape, form); };
  Members order = backward_order(params, muon_members(params));
  const auto longer = [&](std::size_t a, std::size_t b) { return flops(a) > flops(b); };
  if (shard != Shard::kWeights) std::ranges::stable_sort(order, longer);
  std::vector<double> load(static_cast<std::size_t>(world), 0.0);
  std::vector<int> owners;
  for (const Members& chunk : blocks_of(order, load.size())) {
    const std::size_t first = owners.size();
    std::vector<int> ranks(load.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
    });
    std::vector<std::size_t> longest_first(chunk.size());
    std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
    std::ranges::stable_sort(
        longest_first, [&](std::size_t a, std::size_t b) { return longer(chunk[a], chunk[b]); });
    owners.resize(first + chunk.size());
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      owners[first + longest_first[i]] = ranks[i];
      load[static_cast<std::size_t>(ranks[i])] += flops(chunk[longest_first[i]]);
    }
  }
  return chunks_of_world(params, order, world, owners);
}

// The same in backward order with round-robin owners: the article's version before balancing. In
// every chunk with a large matrix, the ranks with small ones wait.
Buckets parallel_round_robin(Params params, int world) {
  const Members order = backward_order(params, muon_members(params));
  std::vector<int> owners;
  for (std::size_t i = 0; i < order.size(); ++i)
    owners.push_back(static_cast<int>(i % static_cast<std::size_t>(world)));
  return chunks_of_world(params, order, world, owners);
}

}  // namespace muo::optim::strategies
