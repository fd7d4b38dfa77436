// Initial weights depend on seed, name and element only: not on the number of ranks, the strategy
// or the backend.
#include "graphs/initial_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "graphs/run_state.h"
#include "runtime/memory/memory_plan.h"
#include "support/initial_values.h"
#include "support/toy_training.h"

namespace muo::graphs {
namespace {

// Compares each rank's masters and replicas with whole tensors.
void expect_initial_weights(const trainer::RunConfig& config, std::uint64_t seed,
                            const std::string& what) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  std::map<std::string, std::vector<float>> want;
  for (const ParamSpec& spec : params)
    want[spec.name] = test::initial_values(spec, seed);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  std::atomic<std::int64_t> compared = 0;
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, plan_rank_memory(config, params, plan, rank.rank), rank.common);
    RunState state(rank, config, params, plan, arena);
    state.initialize_weights(seed + 1);
    state.initialize_weights(seed);
    for (const StateEntry& entry : state.update.state()) {
      if (!want.contains(entry.name)) continue;
      const auto first = want.at(entry.name).begin() + entry.begin;
      const std::int64_t count = entry.values.numel();
      EXPECT_TRUE(std::equal(first, first + count, entry.values.as<float>()))
          << entry.name << " of rank " << rank.rank << ", " << what;
      compared += count;
    }
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Tensor weight = state.update.weight(i);
      const test::HostTensor masters(weight.shape, want.at(params[i].name));
      EXPECT_TRUE(std::equal(weight.data, weight.data + weight.bytes(),
                             masters.rounded(weight.dtype).tensor().data))
          << params[i].name << ", replica of rank " << rank.rank << ", " << what;
    }
  });
  std::int64_t elements = 0;
  for (const ParamSpec& spec : params)
    elements += spec.shape.numel();
  EXPECT_GE(compared, elements) << what;
}

TEST(InitialWeights, AreTheSameOnEveryRankWithEveryStrategy) {
  for (const int world : {1, 2, 3})
    for (const std::string_view strategy : optim::strategy_names()) {
      trainer::RunConfig config = test::toy_config(
          {.world = world, .strategy = std::string(strategy), .nanochat_bf16 = true});
      config.group.world = world;
      config.step_only = true;
      expect_initial_weights(config, 7, std::to_string(world) + ", " + std::string(strategy));
    }
}

}  // namespace
}  // namespace muo::graphs
