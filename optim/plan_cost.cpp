#include <algorithm>
#include <numeric>

#include "optim/sharding_plan.h"
#include "optim/strategies/strategies.h"

namespace muo {
namespace {

// Bytes that cross the link of `rank`, as Communicator::bytes_sent() counts them.
std::int64_t reduced_bytes(const Bucket& bucket, int rank, int world) {
  const std::int64_t full = bucket.full_elements() * size_of(bucket.gradient_wire);
  if (bucket.reduction == Reduction::kAllReduce) return 2 * (full * (world - 1) / world);
  if (bucket.reduction == Reduction::kReduceToOwner) return full;  // root or not, it all passes
  return full - segment_range(bucket, rank).size() * size_of(bucket.gradient_wire);
}

std::int64_t exchanged_bytes(const Bucket& bucket, int rank, int world) {
  const Range segment = segment_range(bucket, rank);
  if (bucket.exchange == Exchange::kAllGather)
    return segment.size() * (world - 1) * size_of(bucket.gradient_wire);
  if (bucket.exchange != Exchange::kGatherToOwner) return 0;
  const std::int64_t kept = intersection(owner_range(bucket, rank), segment).size();
  return (segment.size() - kept) * size_of(bucket.gradient_wire);
}

std::int64_t returned_bytes(const Bucket& bucket, int rank) {
  if (bucket.returns != Return::kScatter) return 0;
  const Range mine = owner_range(bucket, rank);
  const std::int64_t kept = intersection(mine, segment_range(bucket, rank)).size();
  return (mine.size() - kept) * size_of(bucket.gradient_wire);
}

std::int64_t published_bytes(const Bucket& bucket, int rank) {
  if (bucket.publish == Publish::kNone) return 0;
  return (bucket.full_elements() - segment_range(bucket, rank).size()) *
         size_of(bucket.weight_wire);
}

}  // namespace

PlanCost plan_cost(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  const auto world = static_cast<std::size_t>(plan.world);
  PlanCost cost;
  cost.muon_flops.assign(world, 0.0);
  cost.sent_bytes.assign(world, 0);
  double busiest = 0;
  double needed = 0;  // every matrix once
  for (const Bucket& bucket : plan.buckets) {
    const std::vector<double> flops = strategies::flops_by_rank(bucket, params, plan.world);
    busiest += *std::max_element(flops.begin(), flops.end());
    std::int64_t covered = 0;
    for (const Unit& unit : bucket.units) {
      covered += unit.end - unit.begin;
      if (bucket.rule == UpdateRule::kMuon) needed += newton_schulz_flops(params[unit.param].shape);
    }
    cost.padding_elements += bucket.full_elements() - covered;
    for (std::size_t r = 0; r < world; ++r) {
      cost.muon_flops[r] += flops[r];
      if (plan.world == 1) continue;
      const int rank = static_cast<int>(r);
      cost.sent_bytes[r] += reduced_bytes(bucket, rank, plan.world) +
                            exchanged_bytes(bucket, rank, plan.world) +
                            returned_bytes(bucket, rank) + published_bytes(bucket, rank);
    }
  }
  if (busiest > 0) cost.balance = needed / plan.world / busiest;
  return cost;
}

}  // namespace muo
