#include "optim/check_sharding_plan.h"

#include <algorithm>
#include <string>

namespace muo::optim {
namespace {

[[noreturn]] void fail(const Bucket& bucket, const std::string& what) {
  MUO_FAIL("sharding plan, bucket '", bucket.name, "': ", what);
}

void require(bool condition, const Bucket& bucket, const char* what) {
  if (!condition) fail(bucket, what);
}

void check_combination(const Bucket& b) {
  const auto fp32_or_bf16 = [](DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16;
  };
  require(fp32_or_bf16(b.replica_dtype) && fp32_or_bf16(b.state_dtype) &&
              fp32_or_bf16(b.gradient_dtype) && fp32_or_bf16(b.gradient_wire) &&
              fp32_or_bf16(b.weight_wire),
          b, "number formats must be fp32 or bf16");
  require(b.gradient_dtype == DType::kF32 || b.replica_dtype == DType::kBF16, b,
          "bf16 gradients need bf16 weights");
  require(!b.split_master || b.replica_dtype == DType::kBF16, b,
          "split masters need a bf16 replica");
  require(b.rule == UpdateRule::kAdamW || b.state_dtype == DType::kF32 ||
              b.state_rounding == StateRounding::kStochastic,
          b, "bf16 momentum needs stochastic rounding");
  require(b.weight_wire == b.replica_dtype ||
              (b.weight_wire == DType::kBF16 && b.publish != Publish::kNone),
          b, "weights must be sent in the replica's dtype or in bf16");
  require(b.replica != ReplicaAt::kCommon ||
              (b.publish != Publish::kNone && b.weight_wire == b.replica_dtype),
          b, "a common replica needs weights that are published without conversion");
  require(b.replica != ReplicaAt::kSharded ||
              (b.publish != Publish::kNone && b.reduction != Reduction::kAllReduce),
          b, "sharded weights need gradients reduced to a part per rank");
  const bool equal = std::all_of(b.segments.begin(), b.segments.end(),
                                 [&](std::int64_t s) { return s == b.segments[0]; });
  require(equal || b.reduction != Reduction::kReduceScatter, b,
          "reduce-scatter needs equal segments");
  require(equal || b.publish != Publish::kAllGather, b, "all-gather needs equal segments");
  require(
      b.cut == Cut::kWhole || (b.state == StateAt::kElements && b.publish == Publish::kAllGather),
      b, "a cut of each unit needs state by elements and all-gather");
  switch (b.state) {
    case StateAt::kEveryRank:
      require(b.reduction == Reduction::kAllReduce && b.exchange == Exchange::kNone &&
                  b.compute == ComputeAt::kEveryRank && b.returns == Return::kNone &&
                  b.publish == Publish::kNone,
              b, "state at every rank needs all-reduce, without exchange and publication");
      return;
    case StateAt::kOwner:
      require(b.exchange == Exchange::kNone && b.compute == ComputeAt::kOwner &&
                  b.returns == Return::kNone && b.publish != Publish::kNone,
              b, "state at the owner requires that the owner computes and publishes");
      return;
    case StateAt::kElements:
      require(b.rule == UpdateRule::kMuon, b, "state by elements is only possible with Muon");
      require(b.reduction == Reduction::kReduceScatter && equal && b.publish != Publish::kNone, b,
              "state by elements needs reduce-scatter and publication");
      if (b.compute == ComputeAt::kEveryRank)
        require(b.exchange == Exchange::kAllGather && b.returns == Return::kOwnSlice &&
                    b.cut == Cut::kWhole,
                b, "state by elements, computed at every rank, needs all-gather and own slice");
      else if (b.exchange == Exchange::kAllToAll)
        require(b.returns == Return::kAllToAll && b.cut == Cut::kEachUnit, b,
                "exchange by all-to-all needs return by all-to-all and a cut of each unit");
      else
        require(b.exchange == Exchange::kGatherToOwner && b.returns == Return::kScatter, b,
                "state by elements, computed at the owner, needs gather to owner and scatter");
      return;
  }
}

void check_unit(const Bucket& bucket, const Unit& unit, const ShardingPlan& plan,
                std::span<const ParamSpec> params) {
  require(unit.param < params.size(), bucket, "a unit without a parameter");
  const ParamSpec& param = params[unit.param];
  const UpdateGroup group = update_group(param.role);
  require(param.replica == bucket.replica_dtype &&
              number_class(param.role) == number_class(params[bucket.units[0].param].role),
          bucket, "a unit of a different number class");
  require(group.rule == bucket.rule, bucket, "a unit of a different update rule");
  require(0 <= unit.begin && unit.begin < unit.end && unit.end <= param.shape.numel(), bucket,
          "a unit that exceeds its parameter");
  if (bucket.rule == UpdateRule::kMuon)
    require(param.shape.rank() == 2 && unit.end - unit.begin == param.shape.numel(), bucket,
            "a Muon unit that is not a whole matrix");
  else
    require(unit.adam_group == group.adam_group, bucket, "a unit of a different AdamW group");
  const bool owned = bucket.compute == ComputeAt::kOwner;
  require(owned ? 0 <= unit.owner && unit.owner < plan.world : unit.owner == kEveryRank, bucket,
          "a unit whose owner contradicts the bucket's `compute`");
}

// Blocks tile the space, and every rank has an equal part of each. With all-to-all, rank r computes
// the r-th matrix.
void check_blocks(const Bucket& bucket) {
  const auto world = static_cast<std::int64_t>(bucket.segments.size());
  const std::vector<Range> cut = blocks(bucket);
  require(cut.front().begin == 0, bucket, "padding before the first block");
  for (std::size_t i = 0; i < cut.size(); ++i) {
    require(cut[i].size() % world == 0, bucket,
            "a block that cannot be divided equally among ranks");
    if (bucket.exchange != Exchange::kAllToAll) continue;
    require(cut[i].size() == cut[0].size() && bucket.units[i].owner == static_cast<int>(i), bucket,
            "all-to-all needs equal blocks, one per rank in rank order");
  }
}

// Units ascend without overlap, inside the space and, if the owner holds them, in its segment.
void check_space(const Bucket& bucket) {
  const std::int64_t full = bucket.full_elements();
  std::int64_t end = 0;
  std::vector<Range> segments;
  std::int64_t begin = 0;
  for (const std::int64_t size : bucket.segments) {
    segments.push_back({begin, begin + size});
    begin += size;
  }
  for (const Unit& unit : bucket.units) {
    require(unit.offset >= end, bucket, "units overlap or do not ascend");
    end = unit.offset + unit.end - unit.begin;
    require(end <= full, bucket, "a unit beyond the segments");
    if (bucket.state != StateAt::kOwner) continue;
    const Range& segment = segments[static_cast<std::size_t>(unit.owner)];
    require(segment.begin <= unit.offset && end <= segment.end, bucket,
            "a unit outside its owner's segment");
  }
  if (bucket.cut == Cut::kEachUnit) check_blocks(bucket);
  if (bucket.exchange != Exchange::kGatherToOwner) return;
  std::vector<bool> seen(bucket.segments.size(), false);
  for (std::size_t i = 0; i < bucket.units.size(); ++i) {
    const auto owner = static_cast<std::size_t>(bucket.units[i].owner);
    if (i > 0 && bucket.units[i - 1].owner == bucket.units[i].owner) continue;
    require(!seen[owner], bucket, "the units of an owner are not adjacent");
    seen[owner] = true;
  }
}

// Every element is updated exactly once, and each parameter is contiguous in one bucket.
void check_coverage(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  struct Location {
    const Bucket* bucket;
    const Unit* unit;
  };
  std::vector<std::vector<Location>> locations(params.size());
  for (const Bucket& bucket : plan.buckets)
    for (const Unit& unit : bucket.units)
      locations[unit.param].push_back({&bucket, &unit});
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::int64_t end = 0;
    for (const Location& at : locations[i]) {  // ascending, like the units of a bucket
      require(at.unit->begin == end, *at.bucket,
              "a parameter with a gap, or one that is updated twice");
      end = at.unit->end;
      const Location& first = locations[i].front();
      require(at.bucket == first.bucket &&
                  at.unit->offset - at.unit->begin == first.unit->offset - first.unit->begin,
              *at.bucket, "a parameter that is not contiguous");
    }
    MUO_CHECK(end == params[i].shape.numel(), "sharding plan: no unit updates ", params[i].name,
              " from element ", end);
  }
}

void check_tags(const ShardingPlan& plan) {
  struct Use {
    Tag tag;
    int count;
    std::string what;
  };
  std::vector<Use> uses;
  const auto add = [&](const Bucket& bucket, Tag tag, int count, const char* what) {
    if ((tag != 0) != (count > 0)) fail(bucket, concat("tag ", tag, " for ", count, " ", what));
    if (count > 0) uses.push_back({tag, count, concat(what, " of '", bucket.name, "'")});
  };
  const std::int64_t partial = plan.reductions() - 1;  // rounds of reductions before the last
  Tag last_reduce = 0;
  Tag last_partial = 0;
  for (const Bucket& bucket : plan.buckets) {
    require(bucket.reduce_tag > last_reduce, bucket, "not reduced in the order of the buckets");
    last_reduce = bucket.reduce_tag;
    require(partial == 0 || bucket.partial_tag > last_partial, bucket,
            "not reduced in the order of the buckets");
    last_partial = bucket.partial_tag;
    require(last_partial < plan.buckets.front().reduce_tag, bucket,
            "a partial reduction after a last reduction");
    require(bucket.exchange_tag == 0 || bucket.exchange_tag > bucket.reduce_tag, bucket,
            "exchanged before it is reduced");
    require(bucket.return_tag == 0 || bucket.return_tag > bucket.exchange_tag, bucket,
            "returned before it is exchanged");
    require(std::max({bucket.reduce_tag, bucket.exchange_tag, bucket.return_tag}) < plan.totals_tag,
            bucket, "a gradient after the totals");
    if (plan.gather == Gather::kSimple)
      require(bucket.publish_tag == 0 || bucket.publish_tag > plan.totals_tag, bucket,
              "published before the totals are agreed");
    else
      require(bucket.publish_tag < (partial > 0 ? plan.buckets.front().partial_tag
                                                : plan.buckets.front().reduce_tag),
              bucket, "published after a reduction of the step that reads it");
    if (partial == 0)
      require(bucket.partial_tag == 0, bucket, "a tag for partial reductions that do not exist");
    for (std::int64_t m = 0; m < partial; ++m)
      add(bucket, bucket.partial_tag + static_cast<Tag>(m) * plan.tags_of_reductions(),
          reduce_collectives(bucket), "reductions");
    add(bucket, bucket.reduce_tag, reduce_collectives(bucket), "reductions");
    add(bucket, bucket.exchange_tag, exchange_collectives(bucket), "exchanges");
    add(bucket, bucket.return_tag, return_collectives(bucket), "returns");
    add(bucket, bucket.publish_tag, publish_collectives(bucket), "publications");
  }
  uses.push_back({plan.totals_tag, 1, "totals"});
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.tag < b.tag; });
  for (std::size_t i = 1; i < uses.size(); ++i)
    MUO_CHECK(uses[i - 1].tag + static_cast<Tag>(uses[i - 1].count) <= uses[i].tag,
              "sharding plan: ", uses[i - 1].what, " and ", uses[i].what, " share tag ",
              uses[i].tag);
}

void check_publish_order(const ShardingPlan& plan) {
  std::vector<bool> seen(plan.buckets.size(), false);
  Tag last = 0;
  for (const std::size_t b : plan.publish_order) {
    MUO_CHECK(b < plan.buckets.size() && !seen[b], "sharding plan: publish_order has bucket ", b,
              " twice, or it does not exist");
    seen[b] = true;
    const Tag tag = plan.buckets[b].publish_tag;
    if (tag == 0) continue;
    require(tag > last, plan.buckets[b], "not published in the order of publish_order");
    last = tag;
  }
  MUO_CHECK(plan.publish_order.size() == plan.buckets.size(),
            "sharding plan: publish_order lacks a bucket");
}

}  // namespace

void check_sharding_plan(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  MUO_CHECK(plan.world >= 1, "sharding plan for world ", plan.world);
  for (const Bucket& bucket : plan.buckets) {
    require(!bucket.units.empty(), bucket, "no units");
    require(static_cast<int>(bucket.segments.size()) == plan.world, bucket,
            "not one segment per rank");
    require(std::all_of(bucket.segments.begin(), bucket.segments.end(),
                        [](std::int64_t s) { return s >= 0; }),
            bucket, "a negative segment");
    check_combination(bucket);
    require(bucket.gradient_dtype == DType::kF32 || plan.micro_steps == 1 ||
                plan.reduces_every_micro_step(),
            bucket, "micro-steps that accumulate need fp32 gradients");
    for (const Unit& unit : bucket.units)
      check_unit(bucket, unit, plan, params);
    check_space(bucket);
  }
  check_coverage(plan, params);
  check_tags(plan);
  check_publish_order(plan);
}

}  // namespace muo::optim
