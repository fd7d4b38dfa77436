#include <algorithm>
#include <numeric>

#include "optim/bucket_tensors.h"
#include "optim/sharding_plan.h"
#include "optim/strategies/strategies.h"
#include "optim/weight_schedule.h"

namespace muo::optim {
namespace {

std::int64_t segment_elements(const Bucket& bucket, int rank) {
  return bucket.segments[static_cast<std::size_t>(rank)];
}

std::int64_t reduced_bytes(const Bucket& bucket, int rank, int world) {
  const std::int64_t full = bucket.full_elements() * size_of(bucket.gradient_wire);
  if (bucket.reduction == Reduction::kAllReduce) return 2 * (full * (world - 1) / world);
  // All bytes pass through every rank, root or not.
  if (bucket.reduction == Reduction::kReduceToOwner) return full;
  return full - segment_elements(bucket, rank) * size_of(bucket.gradient_wire);
}

// Gathers matrices from the parts of ranks to their owners, or the reverse: the bytes that
// cross the link of `rank` for its own matrices and, in the other direction, for the
// matrices of other ranks.
struct OwnersBytes {
  std::int64_t own = 0, others = 0;
};
OwnersBytes owners_bytes(const Bucket& bucket, int rank) {
  const Range whole = bucket.cut == Cut::kWhole ? segment_range(bucket, rank) : Range{};
  const std::vector<Range> cut = blocks(bucket);
  OwnersBytes out;
  const std::int64_t size = size_of(bucket.gradient_wire);
  for (std::size_t i = 0; i < bucket.units.size(); ++i) {
    const Range unit = unit_range(bucket.units[i]);
    const Range segment =
        bucket.cut == Cut::kWhole ? whole : segment_of_block(bucket, cut[i], rank);
    const std::int64_t held = intersection(unit, segment).size();
    if (bucket.units[i].owner == rank)
      out.own += (unit.size() - held) * size;
    else
      out.others += held * size;
  }
  return out;
}

std::int64_t all_to_all_bytes(const Bucket& bucket, int world) {
  return blocks(bucket).front().size() / world * (world - 1) * size_of(bucket.gradient_wire);
}

std::int64_t published_bytes(const Bucket& bucket, int rank) {
  if (bucket.publish == Publish::kNone || bucket.replica != ReplicaAt::kEveryRank) return 0;
  return (bucket.full_elements() - segment_elements(bucket, rank)) * size_of(bucket.weight_wire);
}

// Bytes that muon_commit and adamw access for the rank's part of a bucket.
std::int64_t committed_bytes(const Bucket& bucket, std::span<const ParamSpec> params, int rank,
                             const ShardingPlan& plan) {
  const bool muon = bucket.rule == UpdateRule::kMuon;
  const DType replica =
      bucket.replica == ReplicaAt::kSharded ? bucket.weight_wire : bucket.replica_dtype;
  // In fp32 the replica is the master; with split masters, it is one half of the master. If the
  // wire has another dtype than the replica, publication writes the replica.
  const bool writes_replica = replica != DType::kF32 && !bucket.split_master &&
                              (plan.world == 1 || bucket.weight_wire == replica);
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t master = 2 * kFloat + (writes_replica ? size_of(replica) : 0);
  const bool summed = plan.world > 1 && bucket.reduction != Reduction::kAllReduce;
  const std::int64_t gradient = size_of(summed ? DType::kF32 : bucket.gradient_dtype);
  const std::int64_t state = size_of(bucket.state_dtype);
  const std::int64_t element = master + gradient + (muon ? 2 * state + kFloat : 4 * state);
  const BucketRanges ranges(bucket, rank, plan.world);
  std::int64_t bytes = 0;
  for (const Unit& unit : bucket.units) {
    for (const Range held : ranges.state.within(unit_range(unit)))
      bytes += held.size() * element;
    if (!muon || !plan.version->factored_variance || !computes(bucket, unit, rank)) continue;
    const Shape& shape = params[unit.param].shape;
    // The variance, which is read and written, and the new variance.
    bytes += std::max(shape[0], shape[1]) * 3 * kFloat;
  }
  return bytes;
}

}  // namespace

BucketBytes bucket_bytes(const Bucket& bucket, int rank, int world) {
  if (world == 1) return {};
  BucketBytes out;
  out.reduce = reduced_bytes(bucket, rank, world);
  out.publish = published_bytes(bucket, rank);
  switch (bucket.exchange) {
    case Exchange::kNone:
      break;
    case Exchange::kAllGather:
      out.exchange = segment_elements(bucket, rank) * (world - 1) * size_of(bucket.gradient_wire);
      break;
    case Exchange::kGatherToOwner: {
      const OwnersBytes bytes = owners_bytes(bucket, rank);
      out.exchange = bytes.own + bytes.others;
      out.owners = std::max(bytes.own, bytes.others);
      break;
    }
    case Exchange::kAllToAll:
      out.exchange = all_to_all_bytes(bucket, world);
      break;
  }
  if (bucket.returns == Return::kScatter || bucket.returns == Return::kAllToAll)
    out.returns = out.exchange;
  return out;
}

PlanCost plan_cost(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  const auto world = static_cast<std::size_t>(plan.world);
  PlanCost cost;
  cost.muon_flops.assign(world, 0.0);
  cost.sent_bytes.assign(world, 0);
  cost.commit_bytes.assign(world, 0);
  double busiest = 0;
  double needed = 0;  // every matrix once
  for (const Bucket& bucket : plan.buckets) {
    const std::vector<double> flops =
        strategies::flops_by_rank(bucket, params, plan.world, *plan.newton_schulz);
    busiest += *std::max_element(flops.begin(), flops.end());
    std::int64_t covered = 0;
    for (const Unit& unit : bucket.units) {
      covered += unit.end - unit.begin;
      if (bucket.rule == UpdateRule::kMuon)
        needed += newton_schulz_flops(params[unit.param].shape, *plan.newton_schulz,
                                      plan.newton_schulz_steps);
    }
    cost.padding_elements += bucket.full_elements() - covered;
    for (std::size_t r = 0; r < world; ++r) {
      const auto rank = static_cast<int>(r);
      cost.muon_flops[r] += flops[r];
      cost.commit_bytes[r] += committed_bytes(bucket, params, rank, plan);
      const BucketBytes bytes = bucket_bytes(bucket, rank, plan.world);
      cost.sent_bytes[r] += bytes.sum() + (plan.reductions() - 1) * bytes.reduce;
    }
  }
  const WeightSchedule schedule = make_weight_schedule(plan, params);
  for (std::size_t r = 0; r < world; ++r)
    cost.sent_bytes[r] +=
        plan.micro_steps * schedule.sent_bytes(schedule.training, plan, static_cast<int>(r));
  if (busiest > 0) cost.balance = needed / plan.world / busiest;
  return cost;
}

}  // namespace muo::optim
