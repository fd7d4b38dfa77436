#include "optim/sharded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernels/commit.h"
#include "runtime/tracing_rank.h"
#include "support/drawn.h"
#include "support/errors.h"
#include "support/plans.h"
#include "support/sanitized.h"
#include "support/tolerance.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

ToyRun toy(int world, std::string_view strategy, int steps) {
  ToyRun run;
  run.world = world;
  run.params = toy_params();
  run.plan = optim::make_sharding_plan(run.params, world, strategy);
  run.steps = steps;
  return run;
}

std::string element_name(const ParamSpec& param, std::int64_t element) {
  if (param.shape.rank() == 1) return concat(param.name, "[", element, "]");
  return concat(param.name, "[", element / param.shape[1], ", ", element % param.shape[1], "]");
}

// Distance over 20 steps between runs on one rank whose gradients differ by one ulp: the
// effect of rounding alone. Two runs count as equal if they are within four times the median
// of eight such distances.
double rounding_distance(const ToyRun& single, const std::vector<double>& want) {
  std::vector<double> controls;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    ToyRun control = single;
    control.perturb = seed;
    controls.push_back(relative_error(flat(run_toy(control)[0].weights), want));
  }
  std::sort(controls.begin(), controls.end());
  return 4.0 * 0.5 * (controls[3] + controls[4]);
}

// Worlds differ in the order of their sums. In a given world, every plan adds the same ranks'
// gradients in the same order, and updates whole matrices alone or in batches, with equal results;
// all plans are therefore bitwise equal if everything is sent in fp32.
TEST(ShardedStep, AllWorldsAndPlansGiveTheSameWeights) {
  const ToyRun single = toy(1, "balanced", 20);
  const ToyRank alone = run_toy(single)[0];
  const std::vector<double> want = flat(alone.weights);
  const double limit = rounding_distance(single, want);
  ASSERT_GT(limit, 0.0);
  double moved = 0;
  for (std::size_t i = 0; i < single.params.size(); ++i) {
    const std::vector<float> initial = toy_weights(single.params[i]);
    moved += relative_error(initial,
                            std::vector<double>(alone.weights[i].begin(), alone.weights[i].end()));
  }
  ASSERT_LT(limit, 1e-3 * moved);  // so that the comparison is meaningful
  test::Drawn drawn(3);
  for (const int world : test::kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4, 7, 8}) {
    if (!drawn.runs_next()) continue;
    std::vector<std::vector<float>> first;
    for (const optim::ShardingPlan& plan : all_plans(single.params, world)) {
      ToyRun run = single;
      run.world = world;
      run.plan = plan;
      const std::vector<ToyRank> ranks = run_toy(run);
      const std::string what = plan.strategy + ", world " + std::to_string(world);
      if (first.empty()) first = ranks[0].weights;
      EXPECT_EQ(ranks[0].weights, first) << what;
      EXPECT_LE(relative_error(flat(ranks[0].weights), want), limit) << what;
      for (const ToyRank& rank : ranks) {
        EXPECT_EQ(rank.weights, ranks[0].weights) << what;
        EXPECT_EQ(rank.squares, ranks[0].squares) << what;
      }
      // Each element is counted on one rank, even if it is replicated. Gradients differ by
      // rounding, by at most one unit per summed rank and element.
      EXPECT_NEAR(ranks[0].squares, alone.squares, alone.squares * 2 * worst_case(2 * world + 4))
          << what;
    }
  }
}

TEST(ShardedStep, GraphEagerAndAnyOrderOfReplayAreBitwiseEqual) {
  const std::vector<ParamSpec> params = toy_params();
  for (const optim::ShardingPlan& plan : all_plans(params, 3)) {
    ToyRun run = toy(3, "balanced", 4);
    run.plan = plan;
    const std::vector<ToyRank> graph = run_toy(run);
    run.graph = false;
    expect_bitwise_equal(run_toy(run), graph, plan.strategy + ", eager");
    run.graph = true;
    for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 1 : 3); ++seed) {
      run.random_order_seed = seed;
      expect_bitwise_equal(run_toy(run), graph, plan.strategy + ", random order");
    }
    run.gradients = Lifespan::kRun;
    expect_bitwise_equal(run_toy(run), graph, plan.strategy + ", gradients of their own");
  }
}

TEST(ShardedStep, CommonReplicasChangeOnlyTheBytesSent) {
  const std::vector<ParamSpec> params = toy_params();
  test::Drawn drawn(5);
  for (const int world : {2, 4})
    for (const optim::ShardingPlan& own : all_plans(params, world))
      for (const optim::ShardingPlan& plan : {own, pipelined(own)}) {
        if (!drawn.runs_next(world == 2 && plan.strategy == "layerwise")) continue;
        ToyRun run = toy(world, "balanced", 3);
        run.plan = plan;
        const std::vector<ToyRank> want = run_toy(run);
        optim::share_replicas(run.plan);
        const std::string what = plan.strategy + ", world " + std::to_string(world);
        const optim::PlanCost cost = optim::plan_cost(run.plan, params);
        const std::int64_t totals = totals_bytes(world, params);
        for (int form = 0; form < 4; ++form) {
          run.graph = form > 0;
          if (form > 1) run.random_order_seed = static_cast<std::uint64_t>(form);
          const std::vector<ToyRank> got = run_toy(run);
          expect_bitwise_equal(got, want, what + ", form " + std::to_string(form));
          for (std::size_t r = 0; r < got.size(); ++r)
            EXPECT_EQ(got[r].sent_bytes,
                      3 * (cost.sent_bytes[r] + 2 * (totals * (world - 1) / world)))
                << what;
        }
      }
}

double total(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return sum;
}

// Each weight is counted once, on whichever rank, and padding is not counted: the sums are compared
// with the final weights of a run of fewer steps. Sums computed by the next step and between steps
// are equal. The squares of gradients are those of one rank.
TEST(ShardedStep, SumsTheSquaresOfEachUpdate) {
  const double squares = run_toy(toy(1, "balanced", 1))[0].squares;
  for (const int world : test::kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4, 7}) {
    const std::vector<ParamSpec> params = toy_params();
    std::vector<std::vector<float>> initial(params.size());
    std::ranges::transform(params, initial.begin(),
                           [](const ParamSpec& param) { return toy_weights(param); });
    for (const optim::ShardingPlan& plan : all_plans(params, world)) {
      const std::string what = plan.strategy + ", world " + std::to_string(world);
      ToyRun run = toy(world, "balanced", 1);
      run.plan = plan;
      const std::vector<ToyRank> one = run_toy(run);
      run.steps = 2;
      const std::vector<ToyRank> two = run_toy(run);
      for (std::size_t r = 0; r < two.size(); ++r) {
        EXPECT_NEAR(one[r].squares, squares, squares * 2 * worst_case(2 * world + 4)) << what;
        for (std::size_t i = 0; i < params.size(); ++i) {
          const auto expect_sums = [&](const UpdateSquares& got, std::vector<float> before,
                                       std::vector<float> after) {
            for (std::vector<float>* weights : {&before, &after})  // padding is not counted
              weights->resize(static_cast<std::size_t>(params[i].used_elements()));
            const double change = total(after, before);
            const double weight = total(after, std::vector<float>(after.size()));
            EXPECT_GT(change, 0.0) << what << params[i].name;
            EXPECT_NEAR(got.change, change, change * worst_case(3)) << what << params[i].name;
            EXPECT_NEAR(got.weight, weight, weight * worst_case(1)) << what << params[i].name;
            // Muon+ and NorMuon set the norm of U to the square root of the short side.
            const Shape& shape = params[i].shape;
            const auto u = params[i].role == ParamRole::kMatrix
                               ? static_cast<double>(std::min(shape[0], shape[1]))
                               : 0.0;
            EXPECT_NEAR(got.u, u, u * probable(shape.numel())) << what << params[i].name;
          };
          expect_sums(one[r].updates[0][i], initial[i], one[r].weights[i]);
          expect_sums(two[r].updates[1][i], one[r].weights[i], two[r].weights[i]);
          EXPECT_EQ(two[r].updates[0][i].change, one[0].updates[0][i].change) << what;
        }
      }
    }
  }
}

// The state has an infinity, while gradients are finite.
TEST(ShardedStep, NamesAMatrixWhoseUpdateIsNotFinite) {
  const std::vector<ParamSpec> params = toy_params();
  for (const int world : {1, 3})
    for (const optim::OptimizerVersion& version : optim::optimizer_versions())
      for (const optim::ShardingPlan& plan : all_plans(params, world)) {
        ToyRun run = toy(world, "balanced", 2);
        run.plan = plan;
        run.plan.version = &version;
        run.bad_momentum = "transformer.h.1.mlp.c_fc.weight";
        for (const ToyRank& rank : run_toy(run)) {
          EXPECT_EQ(rank.scalars.verdict, Verdict::kNotFinite) << plan.strategy;
          EXPECT_EQ(rank.counts, (std::vector<std::int64_t>{1, 0, 2, 0}));
          EXPECT_EQ(rank.bad_number, "the update of transformer.h.1.mlp.c_fc.weight")
              << plan.strategy << ", " << version.name << ", world " << world;
        }
      }
}

TEST(ShardedStep, OneRanksInfinityStopsEveryCommitAndTheNextStepWorks) {
  const std::vector<ParamSpec> params = toy_params();
  std::vector<optim::ShardingPlan> plans = all_plans(params, 3);
  plans.push_back(pipelined(plans.front()));
  for (const optim::ShardingPlan& plan : plans) {
    ToyRun run = toy(3, "balanced", 2);
    run.plan = plan;
    const std::vector<ToyRank> before = run_toy(run);
    for (std::size_t param : {std::size_t{0}, std::size_t{1}, std::size_t{7}, params.size() - 1}) {
      run.bad_rank = 1;
      run.bad_param = param;
      run.bad_step = 2;
      run.steps = 3;
      const std::vector<ToyRank> skipped = run_toy(run);
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(bits_of(skipped[r]), bits_of(before[r]))
            << plan.strategy << ", rank " << r << ", " << params[param].name;
        EXPECT_EQ(skipped[r].scalars.commit, 0);
        EXPECT_EQ(skipped[r].bad_number,
                  "the gradient of " + element_name(params[param], params[param].shape.numel() / 2))
            << plan.strategy;
        EXPECT_EQ(skipped[r].counts, (std::vector<std::int64_t>{1, 1, 2, 2, 3, 2}));
      }
    }
    run.steps = 4;
    const std::vector<ToyRank> after = run_toy(run);
    EXPECT_EQ(after[0].counts.back(), 3);
    EXPECT_NE(bits_of(after[0]), bits_of(before[0]));
    for (const double w : flat(after[2].weights))
      ASSERT_TRUE(std::isfinite(w)) << plan.strategy;
  }
}

// The sizes of the state tensors of each rule, by name.
std::map<std::string, std::int64_t> expected_state(const std::vector<ParamSpec>& params) {
  std::map<std::string, std::int64_t> sizes;
  for (const ParamSpec& param : params) {
    sizes[param.name] = param.shape.numel();
    if (param.role == ParamRole::kMatrix) {
      sizes[param.name + ".momentum"] = param.shape.numel();
      sizes[param.name + ".variance"] = std::max(param.shape[0], param.shape[1]);
    } else {
      sizes[param.name + ".adam_m"] = param.shape.numel();
      sizes[param.name + ".adam_v"] = param.shape.numel();
    }
  }
  return sizes;
}

// Assembles the writers' entries; fails if an element has no writer or two writers.
std::map<std::string, std::vector<float>> assemble(const std::vector<ToyRank>& ranks,
                                                   const std::vector<ParamSpec>& params,
                                                   const std::string& what) {
  std::map<std::string, std::vector<float>> whole;
  std::map<std::string, std::vector<int>> writers;
  for (const auto& [name, size] : expected_state(params)) {
    whole[name].resize(static_cast<std::size_t>(size));
    writers[name].resize(static_cast<std::size_t>(size));
  }
  for (const ToyRank& rank : ranks)
    for (const ToyEntry& entry : rank.state) {
      EXPECT_TRUE(whole.contains(entry.name)) << what << ": " << entry.name;
      if (!entry.writer || !whole.contains(entry.name)) continue;
      std::vector<float>& values = whole[entry.name];
      EXPECT_EQ(entry.shape.numel(), static_cast<std::int64_t>(values.size())) << entry.name;
      for (std::size_t i = 0; i < entry.values.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(entry.begin) + i;
        if (at >= values.size()) {
          ADD_FAILURE() << what << ": " << entry.name << " beyond its end";
          break;
        }
        values[at] = entry.values[i];
        ++writers[entry.name][at];
      }
    }
  for (const auto& [name, counts] : writers)
    EXPECT_TRUE(std::ranges::all_of(counts, [](int n) { return n == 1; })) << what << ": " << name;
  return whole;
}

TEST(ShardedStep, WritersStateIsWholeAndTheSameInEveryPlan) {
  const std::vector<ParamSpec> params = toy_params();
  ToyRun run = toy(1, "balanced", 2);
  const auto want = assemble(run_toy(run), params, "alone");
  const double limit = rounding_distance(run, flat(run_toy(run)[0].weights));
  for (int world = 1; world <= 5; ++world)
    for (const optim::ShardingPlan& plan : all_plans(params, world)) {
      run.world = world;
      run.plan = plan;
      const std::vector<ToyRank> ranks = run_toy(run);
      const std::string what = plan.strategy + ", world " + std::to_string(world);
      const auto got = assemble(ranks, params, what);
      for (std::size_t i = 0; i < params.size(); ++i)
        EXPECT_EQ(got.at(params[i].name), ranks[0].weights[i]) << what << ": " << params[i].name;
      for (const auto& [name, values] : want) {
        if (!name.ends_with(".momentum") && !name.ends_with(".adam_m")) continue;
        // Two lerps of gradients that differ by the rounding of their sums over ranks.
        EXPECT_LE(relative_error(got.at(name), std::vector<double>(values.begin(), values.end())),
                  limit + 4 * worst_case(world + 6))
            << what << ": " << name;
      }
    }
}

TEST(ShardedStep, PublishMakesReplicasEqualTheMasters) {
  const std::vector<ParamSpec> params = toy_params();
  for (const optim::ShardingPlan& plan : all_plans(params, 3)) {
    ToyRun run = toy(3, "balanced", 0);
    run.plan = plan;
    for (const ToyRank& rank : run_toy(run))
      for (std::size_t i = 0; i < params.size(); ++i)
        EXPECT_EQ(rank.weights[i], toy_weights(params[i])) << plan.strategy << params[i].name;
  }
}

TEST(ShardedStep, SendsTheBytesOfThePlan) {
  for (const std::string_view strategy : optim::strategy_names())
    for (int world = 1; world <= 5; ++world) {
      const ToyRun run = toy(world, strategy, 2);
      const optim::PlanCost cost = optim::plan_cost(run.plan, run.params);
      const std::vector<ToyRank> ranks = run_toy(run);
      const std::int64_t totals =
          std::int64_t{2} * (totals_bytes(world, run.params) * (world - 1) / world);
      for (std::size_t r = 0; r < ranks.size(); ++r)
        EXPECT_EQ(ranks[r].sent_bytes, 2 * (cost.sent_bytes[r] + totals))
            << strategy << ", world " << world << ", rank " << r;
    }
}

TEST(ShardedStep, CallsOutOfOrderAreErrors) {
  const std::vector<ParamSpec> params = toy_params(1);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 1, "balanced");
  TracingRank rank(0, 1);
  TraceArena arena(0);
  optim::ShardedStep step(rank.context(), plan, params, arena);
  static_cast<void>(rank.context().compute.capture([&] {
    optim::ShardedStep::MicroStep micro_step = step.begin().micro_step(0);
    const auto first_gradient = [&] { micro_step.gradient_ready(0); };
    EXPECT_THAT(message_of<Error>(first_gradient),
                testing::HasSubstr("wte.weight is announced, but its weight was read"));
    micro_step.weight_needed(0);
    EXPECT_NO_THROW(first_gradient());
    EXPECT_THAT(message_of<Error>(first_gradient), testing::HasSubstr("announced twice"));
  }));
}

TEST(ShardedStep, RefusesPlansOfOtherWorlds) {
  DeviceGroup group({.world = 1});
  const std::vector<ParamSpec> params = toy_params(1);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 2, "balanced");
  group.run([&](RankContext& rank) {
    TraceArena arena(0);
    EXPECT_THROW(optim::ShardedStep(rank, plan, params, arena), Error);
  });
}

}  // namespace
}  // namespace muo::test
