// Gathers of fully sharded weights in passes over the model, and their slots.
#include "optim/weight_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/gpt_config.h"

namespace muo::optim {
namespace {

constexpr std::int64_t kLayers = 6;

std::vector<ParamSpec> gpt(std::int64_t layers = kLayers) {
  model::GptConfig config{.vocab_size = 512,
                          .n_layer = layers,
                          .n_head = 2,
                          .n_kv_head = 2,
                          .n_embd = 128,
                          .seq_len = 64};
  model::set_nanochat_extras(config);
  config.dtype = DType::kBF16;
  return model::gpt_parameters(config);
}

ShardingPlan sharded(const std::vector<ParamSpec>& params, int world, std::string_view strategy) {
  return make_sharding_plan(params, world, strategy, {}, Gather::kSimple,
                            newton_schulz_forms().front(), Shard::kWeights);
}

// Follows a pass through memory. When a stage is entered, the weights that it reads are in
// their slots; weights that are being read are not overwritten, and the weights of the next
// stage are being gathered.
void expect_there(const WeightSchedule& schedule, const std::vector<WeightSchedule::Visit>& visits,
                  std::size_t backward_from) {
  std::vector<std::ptrdiff_t> in_slot(schedule.slots.size(), -1);
  const auto read_at = [&](std::size_t visit) {
    std::set<std::size_t> groups;
    for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
      const WeightGroup& group = schedule.groups[g];
      const int stage = visits[visit].stage;
      if (group.first <= stage && stage <= group.last &&
          (visit < backward_from || group.in_backward))
        groups.insert(g);
    }
    return groups;
  };
  for (std::size_t v = 0; v < visits.size(); ++v) {
    const std::set<std::size_t> now = read_at(v);
    for (const std::size_t g : visits[v].gathers) {
      const std::size_t slot = schedule.groups[g].slot;
      EXPECT_LE(schedule.groups[g].bytes, schedule.slots[slot]);
      const std::ptrdiff_t before = in_slot[slot];
      EXPECT_NE(before, static_cast<std::ptrdiff_t>(g)) << "gathered although it is there";
      const bool read = before >= 0 && now.contains(static_cast<std::size_t>(before));
      EXPECT_FALSE(read) << "overwritten while this stage reads it";
      in_slot[slot] = static_cast<std::ptrdiff_t>(g);
    }
    for (std::size_t next = v; next < std::min(v + 2, visits.size()); ++next)
      for (const std::size_t g : read_at(next))
        EXPECT_EQ(in_slot[schedule.groups[g].slot], static_cast<std::ptrdiff_t>(g))
            << "visit " << v << " of " << visits.size();
  }
}

TEST(WeightSchedule, GathersForTheNextStageWhileThisOneComputes) {
  for (const int world : {2, 3, 8})
    for (const Strategy& strategy : strategy_list()) {
      if (strategy.most < Shard::kWeights) continue;
      SCOPED_TRACE(std::string(strategy.name) + ", world " + std::to_string(world));
      const std::vector<ParamSpec> params = gpt();
      const ShardingPlan plan = sharded(params, world, strategy.name);
      const WeightSchedule schedule = make_weight_schedule(plan, params);
      ASSERT_EQ(schedule.forward.size(), kLayers + 2);       // with embedding and head
      ASSERT_EQ(schedule.training.size(), 2 * kLayers + 2);  // backward skips the embedding
      expect_there(schedule, schedule.forward, schedule.forward.size());
      expect_there(schedule, schedule.training, schedule.forward.size());
      for (std::size_t i = 0; i < params.size(); ++i)
        EXPECT_EQ(schedule.stage_of[i] == kReplicated,
                  params[i].shape.numel() < 1024 && params[i].role != ParamRole::kMatrix)
            << params[i].name;
    }
}

// At any depth: two slots of the size of a layer if matrices are cut one by one, and one of the
// size of a table, because only every other layer has one.
TEST(WeightSchedule, HasSlotsForTwoLayers) {
  for (const std::int64_t layers : {4, 12}) {
    const std::vector<ParamSpec> params = gpt(layers);
    const ShardingPlan plan = sharded(params, 4, "parallel");
    const WeightSchedule schedule = make_weight_schedule(plan, params);
    const std::int64_t layer = std::int64_t{12} * 128 * 128 * 2;
    const std::int64_t table = std::int64_t{512} * 128 * 2;
    ASSERT_EQ(schedule.slots.size(), 3U);
    EXPECT_NEAR(static_cast<double>(schedule.slots[0]), static_cast<double>(layer), 4096);
    EXPECT_NEAR(static_cast<double>(schedule.slots[1]), static_cast<double>(layer), 4096);
    EXPECT_EQ(schedule.slots[2], table);
  }
}

// The forward pass gathers everything once; the backward pass everything except the embedding and
// the weights that are still there: the head, the last layers and the last table.
TEST(WeightSchedule, GathersMissingWeightsAgainForBackward) {
  const std::vector<ParamSpec> params = gpt();
  const ShardingPlan plan = sharded(params, 4, "parallel");
  const WeightSchedule schedule = make_weight_schedule(plan, params);
  std::vector<int> times(schedule.groups.size(), 0);
  for (const WeightSchedule::Visit& visit : schedule.training)
    for (const std::size_t g : visit.gathers)
      ++times[g];
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    const WeightGroup& group = schedule.groups[g];
    const bool table = group.parts.front().block.size() == std::int64_t{512} * 128;
    const bool stays = group.last > kLayers || (!table && group.last >= kLayers - 1);
    if (table && group.first > 0 && group.last <= kLayers) continue;  // the head shares its slot
    EXPECT_EQ(times[g], group.first == 0 || stays ? 1 : 2) << "stages " << group.first;
  }
}

// Embedding and head; six matrices of each layer, and a gate and a table of every other layer.
TEST(WeightSchedule, CountsACollectiveForEachWeight) {
  const std::vector<ParamSpec> params = gpt();
  const WeightSchedule schedule = make_weight_schedule(sharded(params, 4, "parallel"), params);
  EXPECT_EQ(schedule.collectives(schedule.forward), 2 + kLayers * 6 + kLayers / 2 * 2);
}

TEST(WeightSchedule, GathersNothingForReplicas) {
  const std::vector<ParamSpec> params = gpt();
  const WeightSchedule schedule =
      make_weight_schedule(make_sharding_plan(params, 4, "balanced"), params);
  EXPECT_TRUE(schedule.groups.empty());
  EXPECT_TRUE(schedule.training.empty());
}

}  // namespace
}  // namespace muo::optim
