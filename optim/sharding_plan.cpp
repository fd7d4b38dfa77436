#include "optim/sharding_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>

#include "optim/strategies/strategies.h"

namespace muo::optim {
namespace {

using strategies::Params;

struct Entry {
  Strategy about;
  std::vector<Bucket> (*make)(Params params, int world, const NewtonSchulzForm& form, Shard shard);
};
// For strategies whose owners depend neither on the form of Newton-Schulz nor on what is sharded.
template <auto kMake>
std::vector<Bucket> ignoring_form(Params params, int world, const NewtonSchulzForm& /*form*/,
                                  Shard /*shard*/) {
  return kMake(params, world);
}
std::vector<Bucket> balanced(Params params, int world, const NewtonSchulzForm& form,
                             Shard /*shard*/) {
  return strategies::balanced(params, world, form);
}
constexpr std::array kEntries = {
    Entry{{"balanced", "owners of equal work, a few layers per bucket"}, balanced},
    Entry{{"ddp", "every rank updates everything", Shard::kNone, Shard::kNone},
          ignoring_form<strategies::ddp>},
    Entry{{"allreduce_owner", "one matrix per rank, by size (K. Jordan)", Shard::kOptimizer,
           Shard::kOptimizer},
          ignoring_form<strategies::allreduce_owner>},
    Entry{{"block_cyclic", "one matrix per rank, by shape (nanochat 2025)"},
          ignoring_form<strategies::block_cyclic>},
    Entry{{"stacked", "all matrices of a shape in one bucket (nanochat)"},
          ignoring_form<strategies::stacked>},
    Entry{{"layerwise", "whole layers, one per rank (Megatron)"},
          ignoring_form<strategies::layerwise>},
    Entry{{"ns_replicated", "state by elements, all ranks compute (Moonlight)"},
          ignoring_form<strategies::ns_replicated>},
    Entry{{"parallel", "matrices gathered to owners of equal FLOPs (Motif)"}, strategies::parallel},
    Entry{{"parallel_round_robin", "parallel, with owners in turn"},
          ignoring_form<strategies::parallel_round_robin>},
    Entry{{"all_to_all", "matrices of a shape are exchanged whole (dion)"},
          ignoring_form<strategies::all_to_all>},
};

template <class Member>
constexpr auto of_entries(Member member) {
  std::array<std::remove_cvref_t<decltype(member(kEntries[0]))>, kEntries.size()> out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = member(kEntries[i]);
  return out;
}
constexpr auto kStrategies = of_entries([](const Entry& entry) { return entry.about; });
constexpr auto kStrategyNames = of_entries([](const Entry& entry) { return entry.about.name; });

const Entry& entry_of(std::string_view strategy) {
  const auto entry =
      std::ranges::find(kEntries, strategy, [](const Entry& known) { return known.about.name; });
  if (entry != kEntries.end()) return *entry;
  std::string names;
  for (const std::string_view name : kStrategyNames)
    names += (names.empty() ? "" : ", ") + std::string(name);
  throw InputError(concat("unknown sharding strategy '", strategy, "': use one of ", names));
}

void sort_by_completion(std::vector<Bucket>& buckets, Params params) {
  std::stable_sort(buckets.begin(), buckets.end(), [&](const Bucket& a, const Bucket& b) {
    return strategies::last_ready(a, params) < strategies::last_ready(b, params);
  });
}

std::vector<std::size_t> order_of_use(const std::vector<Bucket>& buckets, Params params) {
  std::vector<std::size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return strategies::first_use(buckets[a], params) < strategies::first_use(buckets[b], params);
  });
  return order;
}

// Sets the number formats in which the bucket's parameters are held and sent.
void set_formats(Bucket& bucket, Params params, const NumberFormats& formats) {
  const ParamSpec& param = params[bucket.units.front().param];
  const NumberClass kind = number_class(param.role);
  bucket.replica_dtype = bucket.weight_wire = param.replica;
  if (kind == NumberClass::kScalar) return;
  bucket.split_master = formats.split_masters && param.replica == DType::kBF16;
  bucket.state_dtype =
      bucket.rule == UpdateRule::kMuon ? formats.momentum_state : formats.adam_state;
  if (bucket.state_dtype == DType::kBF16)
    bucket.state_rounding = StateRounding::kStochastic;
  else if (kind == NumberClass::kEmbedding)
    bucket.state_dtype = formats.embedding_state;
  if (param.replica == DType::kBF16) bucket.gradient_dtype = formats.gradients;
  bucket.gradient_wire = formats.gradient_wire;
  if (bucket.publish != Publish::kNone && param.replica == DType::kF32)
    bucket.weight_wire = formats.weight_wire;
}

}  // namespace

void assign_tags(ShardingPlan& plan) {
  Tag next = 1;
  const auto take = [&](int count) {
    const Tag tag = count > 0 ? next : 0;
    next += static_cast<Tag>(count);
    return tag;
  };
  const auto publish = [&] {
    for (const std::size_t b : plan.publish_order)
      plan.buckets[b].publish_tag = take(publish_collectives(plan.buckets[b]));
  };
  if (plan.gather == Gather::kPipelined) publish();
  for (Bucket& bucket : plan.buckets)
    bucket.partial_tag = plan.reductions() > 1 ? take(reduce_collectives(bucket)) : 0;
  if (plan.reductions() > 2)
    next += static_cast<Tag>(plan.reductions() - 2) * plan.tags_of_reductions();
  // An exchange is enqueued before the updates of the previous bucket return, so that the input of
  // the next bucket is sent while that bucket is computed.
  Bucket* computing = nullptr;
  const auto return_previous = [&] {
    if (computing != nullptr) computing->return_tag = take(return_collectives(*computing));
    computing = nullptr;
  };
  for (Bucket& bucket : plan.buckets) {
    bucket.reduce_tag = take(reduce_collectives(bucket));
    bucket.exchange_tag = take(exchange_collectives(bucket));
    return_previous();
    computing = &bucket;
  }
  return_previous();
  plan.totals_tag = take(1);
  if (plan.gather == Gather::kSimple) publish();
  plan.weights_tag = next;
}

std::vector<BucketCall> bucket_calls(const ShardingPlan& plan) {
  std::vector<BucketCall> calls;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    calls.push_back({bucket.reduce_tag, CallPhase::kReduce, b});
    if (bucket.exchange_tag != 0) calls.push_back({bucket.exchange_tag, CallPhase::kExchange, b});
    if (bucket.return_tag != 0) calls.push_back({bucket.return_tag, CallPhase::kReturn, b});
  }
  std::ranges::sort(calls, {}, &BucketCall::tag);
  return calls;
}

Tag ShardingPlan::tags_of_reductions() const {
  Tag tags = 0;
  for (const Bucket& bucket : buckets)
    tags += static_cast<Tag>(reduce_collectives(bucket));
  return tags;
}

std::int64_t Bucket::full_elements() const {
  return std::accumulate(segments.begin(), segments.end(), std::int64_t{0});
}

std::int64_t Bucket::segment_begin(int rank) const {
  return std::accumulate(segments.begin(), segments.begin() + rank, std::int64_t{0});
}

bool computes(const Bucket& bucket, const Unit& unit, int rank) {
  return bucket.compute == ComputeAt::kEveryRank || unit.owner == rank;
}

Range unit_range(const Unit& unit) { return {unit.offset, unit.offset + unit.end - unit.begin}; }

std::vector<Range> blocks(const Bucket& bucket) {
  if (bucket.cut == Cut::kWhole) return {{0, bucket.full_elements()}};
  std::vector<Range> out;
  for (const Unit& unit : bucket.units) {
    if (!out.empty()) out.back().end = unit.offset;
    out.push_back({unit.offset, 0});
  }
  out.back().end = bucket.full_elements();
  return out;
}

Range segment_of_block(const Bucket& bucket, Range block, int rank) {
  if (bucket.cut == Cut::kWhole) return segment_range(bucket, rank);
  const std::int64_t part = block.size() / static_cast<std::int64_t>(bucket.segments.size());
  return {block.begin + rank * part, block.begin + (rank + 1) * part};
}

Range segment_range(const Bucket& bucket, int rank) {
  const std::int64_t begin = bucket.segment_begin(rank);
  return {begin, begin + bucket.segments[static_cast<std::size_t>(rank)]};
}

Range owner_range(const Bucket& bucket, int rank) {
  Range range;
  for (const Unit& unit : bucket.units) {
    if (unit.owner != rank && unit.owner != kEveryRank) continue;
    if (range.size() == 0) range.begin = unit.offset;
    range.end = unit_range(unit).end;
  }
  return range;
}

namespace {
int block_count(const Bucket& bucket) {
  return bucket.cut == Cut::kWhole ? 1 : static_cast<int>(bucket.units.size());
}
}  // namespace

int reduce_collectives(const Bucket& bucket) {
  return bucket.reduction == Reduction::kReduceToOwner ? static_cast<int>(bucket.segments.size())
                                                       : block_count(bucket);
}

int exchange_collectives(const Bucket& bucket) {
  if (bucket.exchange == Exchange::kNone) return 0;
  return bucket.exchange == Exchange::kGatherToOwner ? static_cast<int>(bucket.units.size()) : 1;
}

int return_collectives(const Bucket& bucket) {
  if (bucket.returns == Return::kScatter) return static_cast<int>(bucket.units.size());
  return bucket.returns == Return::kAllToAll ? 1 : 0;
}

int publish_collectives(const Bucket& bucket) {
  if (bucket.publish == Publish::kNone || bucket.replica == ReplicaAt::kSharded) return 0;
  return bucket.replica == ReplicaAt::kCommon ? 1 : block_count(bucket);
}

void share_replicas(ShardingPlan& plan) {
  for (Bucket& bucket : plan.buckets)
    if (bucket.publish != Publish::kNone && bucket.weight_wire == bucket.replica_dtype)
      bucket.replica = ReplicaAt::kCommon;
  assign_tags(plan);
}

std::span<const Strategy> strategy_list() { return kStrategies; }
std::span<const std::string_view> strategy_names() { return kStrategyNames; }

const Strategy& strategy_of(std::string_view name) { return entry_of(name).about; }

ShardingPlan make_sharding_plan(std::span<const ParamSpec> params, int world,
                                std::string_view strategy, const NumberFormats& formats,
                                Gather gather, const NewtonSchulzForm& form, Shard shard) {
  MUO_CHECK(world >= 1, "world is ", world, ", expected 1 or more");
  for (const ParamSpec& param : params) {
    MUO_CHECK(param.shape.rank() >= 1 && param.shape.numel() > 0, param.name, " has shape ",
              param.shape.text());
    MUO_CHECK(update_group(param.role).rule != UpdateRule::kMuon || param.shape.rank() == 2,
              "Muon updates matrices; ", param.name, " has shape ", param.shape.text());
  }
  const Entry& entry = entry_of(strategy);
  MUO_CHECK(shard <= entry.about.most || shard == Shard::kOptimizer, strategy,
            " does not support this level of sharding");
  ShardingPlan plan{.world = world,
                    .strategy = std::string(strategy),
                    .buckets = entry.make(params, world, form, shard),
                    .newton_schulz = &form,
                    .gather = gather,
                    .shard = shard};
  for (Bucket& bucket : plan.buckets) {
    set_formats(bucket, params, formats);
    if (shard == Shard::kWeights && world > 1 && bucket.publish != Publish::kNone)
      bucket.replica = ReplicaAt::kSharded;
  }
  sort_by_completion(plan.buckets, params);
  plan.publish_order = order_of_use(plan.buckets, params);
  assign_tags(plan);
  return plan;
}

}  // namespace muo::optim
