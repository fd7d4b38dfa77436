#include "optim/newton_schulz_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "optim/sharded_step.h"
#include "runtime/tracing_rank.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

// Ownership and form are independent. Tested with one rank and with several, some of
// which own little.
TEST(NewtonSchulzForms, AreBitwiseTheSameUnderEveryStrategy) {
  for (const DType replica : {DType::kF32, DType::kBF16}) {
    std::vector<std::vector<double>> results;
    for (const optim::NewtonSchulzForm& form : optim::newton_schulz_forms()) {
      for (const int world : {1, 2, 3, 4}) {
        std::vector<double> first;
        for (const std::string_view strategy : optim::strategy_names()) {
          ToyRun run;
          run.world = world;
          run.params = toy_params(2, replica);
          run.plan = optim::make_sharding_plan(run.params, world, strategy, {},
                                               optim::Gather::kSimple, form);
          run.steps = 2;
          const std::vector<double> weights = flat(run_toy(run)[0].weights);
          if (first.empty()) first = weights;
          EXPECT_EQ(weights, first) << form.name << ", world " << world << ", " << strategy;
        }
        if (world == 1) results.push_back(first);
      }
      // Different forms give different bits, but merged forms may round like others, and in bf16
      // all may.
      if (form.merged || replica == DType::kBF16) continue;
      for (std::size_t i = 0; i + 1 < results.size(); ++i)
        EXPECT_NE(results.back(), results[i]) << form.name << " is form " << i;
    }
  }
}

struct Calls {
  std::int64_t products, transposes;
};
Calls calls_of_step(std::string_view form) {
  const std::vector<ParamSpec> params = {{.name = "h.0.c_q", .shape = {24, 24}, .layer = 0},
                                         {.name = "h.0.c_fc", .shape = {96, 24}, .layer = 0},
                                         {.name = "h.0.c_proj", .shape = {24, 96}, .layer = 0},
                                         {.name = "h.0.c_fc_2", .shape = {96, 24}, .layer = 0},
                                         {.name = "h.0.c_proj_2", .shape = {24, 96}, .layer = 0}};
  const optim::ShardingPlan plan = optim::make_sharding_plan(
      params, 1, "balanced", {}, optim::Gather::kSimple, optim::newton_schulz_form(form));
  TracingRank tracing(0, 1);
  TraceArena arena(0);
  optim::ShardedStep step(tracing.context(), plan, params, arena);
  const auto graph = tracing.context().compute.capture([&] {
    optim::ShardedStep::OpenStep open = step.begin();
    optim::ShardedStep::MicroStep micro_step = open.micro_step(0);
    for (std::size_t i = 0; i < params.size(); ++i)
      micro_step.weight_needed(i);
    for (std::size_t i = 0; i < params.size(); ++i)
      micro_step.gradient_ready(i);
    open.finish();
  });
  const auto count = [&](std::string_view name) {
    return std::ranges::count(graph->trace().nodes, name, &GraphTrace::Node::name);
  };
  return {count("gemm") + count("symmetric_product"), count("transpose")};
}

// Five steps of three products per batch: square, tall and wide; with merging, there is one batch
// less. The Gram form has three products that involve x, and 11 small products.
TEST(NewtonSchulzForms, MergedFormsBatchBothOrientations) {
  const auto expect = [](std::string_view form, std::int64_t products, std::int64_t transposes) {
    const Calls calls = calls_of_step(form);
    EXPECT_EQ(calls.products, products) << form;
    EXPECT_EQ(calls.transposes, transposes) << form;
  };
  expect("plain", 45, 0);
  expect("symmetric", 45, 0);
  expect("gram", 15 + 2 * 17, 0);
  expect("merged", 30, 2);
  expect("gram_merged", 15 + 17, 2);
}

// Owners are assigned by the FLOPs of the form, which are also those that the plan's cost counts.
TEST(NewtonSchulzForms, OwnersAreBalancedByTheirFlops) {
  std::vector<ParamSpec> params;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "h." + std::to_string(layer) + ".";
    for (const char* square : {"q", "k", "v", "o"})
      params.push_back({.name = name + square, .shape = {64, 64}, .layer = layer});
    params.push_back({.name = name + "fc", .shape = {256, 64}, .layer = layer});
    params.push_back({.name = name + "proj", .shape = {64, 256}, .layer = layer});
  }
  const auto total = [&](const optim::NewtonSchulzForm& form) {
    double flops = 0;
    for (const ParamSpec& param : params)
      flops += optim::newton_schulz_flops(param.shape, form);
    return flops;
  };
  for (const optim::NewtonSchulzForm& form : optim::newton_schulz_forms())
    for (const int world : {1, 3, 8}) {
      optim::ShardingPlan plan =
          optim::make_sharding_plan(params, world, "balanced", {}, optim::Gather::kSimple, form);
      const optim::PlanCost cost = optim::plan_cost(plan, params);
      const double all = std::accumulate(cost.muon_flops.begin(), cost.muon_flops.end(), 0.0);
      EXPECT_NEAR(all, total(form), 1e-6 * all) << form.name;
      // At least as good as with owners assigned for the plain form.
      optim::ShardingPlan other = optim::make_sharding_plan(params, world, "balanced");
      other.newton_schulz = &form;
      EXPECT_GE(cost.balance, optim::plan_cost(other, params).balance - 1e-12)
          << form.name << world;
    }
}

}  // namespace
}  // namespace muo::test
