// Invariants of every plan of every strategy, over random models.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/philox.h"
#include "kernels/commit.h"
#include "optim/check_sharding_plan.h"
#include "optim/sharded_step.h"
#include "optim/sharding_plan.h"
#include "runtime/comm/collective.h"
#include "runtime/memory/arena.h"
#include "runtime/tracing_rank.h"
#include "support/plans.h"

namespace muo::test {
namespace {

std::vector<ParamSpec> random_params(std::uint64_t seed) {
  const CounterRandom random(seed, "parameters");
  std::uint64_t draw = 0;
  const auto below = [&](std::uint64_t n) {
    return static_cast<std::int64_t>(random.bits(draw++) % n);
  };
  std::vector<ParamSpec> params;
  const std::int64_t count = 1 + below(40);
  for (std::int64_t i = 0; i < count; ++i) {
    ParamSpec param;
    param.role = static_cast<ParamRole>(below(7));
    param.layer = static_cast<int>(below(7)) - 1;
    param.name = "h." + std::to_string(param.layer) + ".p" + std::to_string(i);
    if (param.role == ParamRole::kMatrix)
      param.shape = {1 + below(4) * 16, 1 + below(4) * 16};
    else if (below(2) == 0)
      param.shape = {1 + below(3000)};
    else
      param.shape = {1 + below(60), 1 + below(60)};
    params.push_back(param);
  }
  number_in_model_order(params);
  for (ParamSpec& param : params)  // another order, with ties, as in some models
    param.ready = static_cast<int>(below(30));
  return params;
}

// The properties of a valid plan, counted element by element and without check_sharding_plan.
void expect_valid(const optim::ShardingPlan& plan, const std::vector<ParamSpec>& params) {
  std::vector<std::vector<int>> updated(params.size());
  for (std::size_t i = 0; i < params.size(); ++i)
    updated[i].resize(static_cast<std::size_t>(params[i].shape.numel()));
  int last_ready = 0;
  for (const optim::Bucket& bucket : plan.buckets) {
    std::vector<int> space(static_cast<std::size_t>(bucket.full_elements()));
    int ready = 0;
    for (const optim::Unit& unit : bucket.units) {
      ready = std::max(ready, params[unit.param].ready);
      for (std::int64_t e = unit.begin; e < unit.end; ++e) {
        ++updated[unit.param][static_cast<std::size_t>(e)];
        const std::int64_t at = unit.offset + e - unit.begin;
        ASSERT_LT(at, bucket.full_elements());
        ++space[static_cast<std::size_t>(at)];
        if (bucket.state == optim::StateAt::kOwner) {
          ASSERT_GE(at, bucket.segment_begin(unit.owner));
          ASSERT_LT(at, bucket.segment_begin(unit.owner) +
                            bucket.segments[static_cast<std::size_t>(unit.owner)]);
        }
      }
    }
    EXPECT_GE(ready, last_ready) << "reduced before an earlier gradient";
    last_ready = ready;
    EXPECT_TRUE(std::ranges::all_of(space, [](int n) { return n <= 1; })) << bucket.name;
  }
  for (std::size_t i = 0; i < params.size(); ++i)
    EXPECT_TRUE(std::ranges::all_of(updated[i], [](int n) { return n == 1; })) << params[i].name;
}

// Records a rank's collectives, and sends nothing.
class RecordingCommunicator final : public CheckedCommunicator {
 public:
  struct Call {
    Collective collective;
    std::vector<std::int64_t> counts;
  };

  using CheckedCommunicator::CheckedCommunicator;
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_; }
  void check() const override {}
  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }

 private:
  void enqueue(Stream& /*stream*/, const Collective& collective) override {
    Call& call = calls_.emplace_back();
    call.collective = collective;
    call.counts.assign(collective.counts.begin(), collective.counts.end());
    bytes_ += collective.wire_bytes;
  }
  std::vector<Call> calls_;
  std::int64_t bytes_ = 0;
};

std::vector<std::size_t> in_order(const std::vector<ParamSpec>& params, int ParamSpec::*place) {
  std::vector<std::size_t> order(params.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return params[i].*place; });
  return order;
}

// One step of the executor on one rank.
RecordingCommunicator recorded_step(const optim::ShardingPlan& plan,
                                    const std::vector<ParamSpec>& params, int rank) {
  TracingRank tracing(rank, plan.world);
  RecordingCommunicator communicator(rank, plan.world);
  const RankContext& traced = tracing.context();
  const RankContext context{traced.rank,    traced.world,   traced.device,
                            traced.compute, traced.comm,    traced.update,
                            communicator,   traced.barrier, traced.progress};
  TraceArena arena(rank);
  optim::ShardedStep step(context, plan, params, arena);
  static_cast<void>(context.compute.capture([&] {
    optim::ShardedStep::OpenStep open = step.begin();
    for (std::int64_t m = 0; m < plan.micro_steps; ++m) {
      optim::ShardedStep::MicroStep micro_step = open.micro_step(m);
      for (const std::size_t i : in_order(params, &ParamSpec::use))
        micro_step.weight_needed(i);
      for (const std::size_t i : in_order(params, &ParamSpec::ready)) {
        if (params[i].in_backward) micro_step.weight_needed(i);
        if (!micro_step.reduces()) continue;
        micro_step.gradient_needed(i);
        micro_step.gradient_ready(i);
      }
    }
    open.finish();
  }));
  return communicator;
}

// Every rank enters the same collectives in the same order, in which tags ascend; this holds
// separately for the gathers of sharded weights and for all other collectives.
void expect_one_total_order(std::vector<RecordingCommunicator>& ranks, Tag weights_tag) {
  const std::size_t count = ranks.at(0).calls().size();
  Tag last_gather = 0;
  Tag last_other = 0;
  for (const RecordingCommunicator& rank : ranks)
    ASSERT_EQ(rank.calls().size(), count);
  for (std::size_t c = 0; c < count; ++c) {
    std::vector<Collective> by_rank;
    for (const RecordingCommunicator& rank : ranks) {
      by_rank.push_back(rank.calls()[c].collective);
      by_rank.back().counts = rank.calls()[c].counts;
    }
    EXPECT_EQ(mispairing(by_rank), "");
    Tag& last = by_rank[0].tag >= weights_tag ? last_gather : last_other;
    EXPECT_GT(by_rank[0].tag, last);
    last = by_rank[0].tag;
  }
}

TEST(PlanProperties, EveryParameterIsUpdatedOnceAtEveryWorld) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::vector<ParamSpec> params = random_params(seed);
    for (int world = 1; world <= 16; ++world) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", world " + std::to_string(world));
      double stacked = 0;
      double balanced = 0;
      for (const std::string_view strategy : optim::strategy_names()) {
        const optim::ShardingPlan plan = optim::make_sharding_plan(params, world, strategy);
        EXPECT_NO_THROW(optim::check_sharding_plan(plan, params)) << strategy;
        expect_valid(plan, params);
        if (strategy == "stacked") stacked = optim::plan_cost(plan, params).balance;
        if (strategy == "balanced") balanced = optim::plan_cost(plan, params).balance;
      }
      EXPECT_GE(balanced, stacked * (1 - 1e-3));
    }
  }
}

TEST(PlanProperties, RanksEnterTheSameCollectivesInOneOrderAndSendThePredictedBytes) {
  constexpr DType kBF16 = DType::kBF16;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const std::vector<ParamSpec> any_order = random_params(seed);
    std::vector<ParamSpec> reversed = any_order;  // backward reads weights in reverse order
    number_in_model_order(reversed);
    const optim::NumberFormats formats =
        seed % 2 == 0 ? optim::NumberFormats{}
                      : optim::NumberFormats{.gradient_wire = kBF16, .weight_wire = kBF16};
    for (const auto& [world, shard] : {std::pair{1, optim::Shard::kWeights},
                                       {2, optim::Shard::kOptimizer},
                                       {2, optim::Shard::kWeights},
                                       {3, optim::Shard::kGradients},
                                       {5, optim::Shard::kGradients},
                                       {5, optim::Shard::kWeights},
                                       {8, optim::Shard::kOptimizer},
                                       {8, optim::Shard::kWeights},
                                       {16, optim::Shard::kOptimizer}})
      for (const optim::Strategy& strategy : optim::strategy_list()) {
        SCOPED_TRACE(std::string(strategy.name) + ", seed " + std::to_string(seed) + ", world " +
                     std::to_string(world) + ", shard " + std::to_string(static_cast<int>(shard)));
        if (shard > strategy.most && shard > optim::Shard::kOptimizer) continue;
        const std::vector<ParamSpec>& params =
            shard == optim::Shard::kWeights ? reversed : any_order;
        const optim::Gather gather =
            seed % 3 == 0 ? optim::Gather::kPipelined : optim::Gather::kSimple;
        optim::ShardingPlan plan =
            optim::make_sharding_plan(params, world, strategy.name, formats, gather,
                                      optim::newton_schulz_forms().front(), shard);
        if (plan.reduces_every_micro_step()) {
          plan.micro_steps = static_cast<std::int64_t>(1 + seed);
          optim::assign_tags(plan);
        }
        const optim::PlanCost cost = optim::plan_cost(plan, params);
        std::vector<RecordingCommunicator> ranks;
        ranks.reserve(static_cast<std::size_t>(world));
        for (int r = 0; r < world; ++r)
          ranks.push_back(recorded_step(plan, params, r));
        expect_one_total_order(ranks, plan.weights_tag);
        const std::int64_t totals =
            std::int64_t{2} * (totals_bytes(world, params) * (world - 1) / world);
        for (std::size_t r = 0; r < ranks.size(); ++r)
          EXPECT_EQ(ranks[r].bytes_sent(), cost.sent_bytes[r] + totals) << "rank " << r;
      }
  }
}

}  // namespace
}  // namespace muo::test
