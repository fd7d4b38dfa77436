#include "support/plans.h"

#include <algorithm>
#include <numeric>

#include "kernels/commit.h"
#include "kernels/update_squares.h"

namespace muo::test {
namespace {

// AdamW as in `balanced`; Muon buckets from `make`, which is called with `per_bucket`
// matrices at a time.
template <class Make>
optim::ShardingPlan with_matrices(std::span<const ParamSpec> params, int world,
                                  std::size_t per_bucket, const Make& make) {
  optim::ShardingPlan plan = optim::make_sharding_plan(params, world, "balanced");
  std::erase_if(plan.buckets,
                [](const optim::Bucket& b) { return b.rule == optim::UpdateRule::kMuon; });
  std::vector<std::size_t> matrices;
  for (std::size_t i = params.size(); i-- > 0;)  // backward order
    if (params[i].role == ParamRole::kMatrix) matrices.push_back(i);
  for (std::size_t begin = 0; begin < matrices.size(); begin += per_bucket) {
    const std::size_t end = std::min(begin + per_bucket, matrices.size());
    std::vector<std::size_t> members(matrices.begin() + static_cast<std::ptrdiff_t>(begin),
                                     matrices.begin() + static_cast<std::ptrdiff_t>(end));
    std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return params[a].shape.numel() < params[b].shape.numel();
    });
    plan.buckets.push_back(make(members));
  }
  plan.strategy = "by hand";
  plan.publish_order.resize(plan.buckets.size());
  std::iota(plan.publish_order.rbegin(), plan.publish_order.rend(), std::size_t{0});
  optim::assign_tags(plan);
  return plan;
}

// `gap` is the number of padding elements before each unit.
optim::Bucket by_elements(std::span<const ParamSpec> params, int world,
                          const std::vector<std::size_t>& members, std::int64_t gap) {
  optim::Bucket bucket;
  bucket.name = params[members.front()].name + " by elements";
  bucket.rule = optim::UpdateRule::kMuon;
  bucket.state = optim::StateAt::kElements;
  std::int64_t offset = 0;
  for (const std::size_t param : members) {
    offset += gap;
    const std::int64_t n = params[param].shape.numel();
    bucket.units.push_back({.param = param, .end = n, .offset = offset});
    offset += n;
  }
  bucket.segments.assign(static_cast<std::size_t>(world), (offset + world - 1) / world);
  return bucket;
}

}  // namespace

optim::ShardingPlan plan_all_gather_inputs(std::span<const ParamSpec> params, int world,
                                           int per_bucket) {
  return with_matrices(params, world, static_cast<std::size_t>(per_bucket), [&](const auto& m) {
    optim::Bucket bucket = by_elements(params, world, m, 0);
    bucket.exchange = optim::Exchange::kAllGather;
    bucket.compute = optim::ComputeAt::kEveryRank;
    bucket.returns = optim::Return::kOwnSlice;
    return bucket;
  });
}

optim::ShardingPlan plan_gather_to_owner(std::span<const ParamSpec> params, int world,
                                         int per_bucket) {
  return with_matrices(params, world, static_cast<std::size_t>(per_bucket), [&](const auto& m) {
    optim::Bucket bucket = by_elements(params, world, m, 5);
    bucket.exchange = optim::Exchange::kGatherToOwner;
    bucket.returns = optim::Return::kScatter;
    // Owners in descending order: some own several units and, if there are few
    // units, some own none.
    const auto count = static_cast<int>(bucket.units.size());
    for (int i = 0; i < count; ++i)
      bucket.units[static_cast<std::size_t>(i)].owner = world - 1 - i * world / count;
    return bucket;
  });
}

optim::ShardingPlan plan_owned_unequal(std::span<const ParamSpec> params, int world,
                                       optim::Reduction reduction) {
  return with_matrices(params, world, 4, [&](const auto& m) {
    optim::Bucket bucket;
    bucket.name = params[m.front()].name + " owned";
    bucket.rule = optim::UpdateRule::kMuon;
    bucket.reduction = reduction;
    bucket.publish = optim::Publish::kAllGatherV;
    bucket.segments.assign(static_cast<std::size_t>(world), 0);
    const auto count = static_cast<int>(m.size());
    std::int64_t offset = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t param = m[static_cast<std::size_t>(i)];
      const int owner = i * world / count;
      const std::int64_t n = params[param].shape.numel();
      bucket.units.push_back({.param = param, .end = n, .owner = owner, .offset = offset});
      bucket.segments[static_cast<std::size_t>(owner)] += n;
      offset += n;
    }
    return bucket;
  });
}

void number_in_model_order(std::vector<ParamSpec>& params) {
  const int count = static_cast<int>(params.size());
  for (int i = 0; i < count; ++i) {
    params[static_cast<std::size_t>(i)].use = i;
    params[static_cast<std::size_t>(i)].ready = count - 1 - i;
  }
}

std::vector<optim::ShardingPlan> all_plans(const std::vector<ParamSpec>& params, int world) {
  std::vector<optim::ShardingPlan> plans;
  for (const std::string_view strategy : optim::strategy_names())
    plans.push_back(optim::make_sharding_plan(params, world, strategy));
  plans.push_back(plan_all_gather_inputs(params, world, 5));
  plans.push_back(plan_gather_to_owner(params, world, 5));
  plans.push_back(plan_gather_to_owner(params, world, 2));
  plans.push_back(plan_owned_unequal(params, world, optim::Reduction::kReduceToOwner));
  plans.push_back(plan_owned_unequal(params, world, optim::Reduction::kAllReduce));
  return plans;
}

std::int64_t totals_bytes(int world, std::span<const ParamSpec> params) {
  return (kRankIndices + world + static_cast<std::int64_t>(params.size()) * kUpdateSquares) *
         size_of(DType::kF64);
}

optim::ShardingPlan pipelined(optim::ShardingPlan plan) {
  plan.gather = optim::Gather::kPipelined;
  optim::assign_tags(plan);
  return plan;
}

}  // namespace muo::test
