#include "optim/sharding_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "model/parameters.h"
#include "optim/check_sharding_plan.h"
#include "support/drawn.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/plans.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

using testing::HasSubstr;

// The plain GPT at nanochat's sizes: six matrices per layer, embedding and head.
std::vector<ParamSpec> gpt_params(int layers, std::int64_t width) {
  std::vector<ParamSpec> params;
  params.push_back(
      {.name = "transformer.wte.weight", .shape = {32768, width}, .role = ParamRole::kEmbedding});
  for (int l = 0; l < layers; ++l) {
    const auto add = [&](const std::string& name, const Shape& shape) {
      params.push_back({.name = "transformer.h." + std::to_string(l) + "." + name + ".weight",
                        .shape = shape,
                        .layer = l});
    };
    for (const char* name : {"attn.c_q", "attn.c_k", "attn.c_v", "attn.c_proj"})
      add(name, {width, width});
    add("mlp.c_fc", {4 * width, width});
    add("mlp.c_proj", {width, 4 * width});
  }
  params.push_back(
      {.name = "lm_head.weight", .shape = {32768, width}, .role = ParamRole::kUnembedding});
  number_in_model_order(params);
  return params;
}

double stacked_balance(const std::vector<ParamSpec>& params, int world) {
  return optim::plan_cost(optim::make_sharding_plan(params, world, "stacked"), params).balance;
}

// The balance that plans of nanochat's own models must reach on 8 ranks, including gates.
TEST(ShardingPlan, BalanceOfNanochatsModelsOnEightRanks) {
  for (const std::int64_t depth : {12, 24}) {
    model::GptConfig model{.vocab_size = 32768,
                           .n_layer = depth,
                           .n_head = depth / 2,
                           .n_kv_head = depth / 2,
                           .n_embd = 64 * depth,
                           .seq_len = 2048,
                           .window_pattern = "SSSL"};
    model::set_nanochat_extras(model);
    const std::vector<ParamSpec> params = model::gpt_parameters(model);
    const optim::PlanCost cost =
        optim::plan_cost(optim::make_sharding_plan(params, 8, "balanced"), params);
    std::int64_t elements = 0;
    for (const ParamSpec& param : params)
      elements += param.shape.numel();
    EXPECT_GE(cost.balance, 0.97);
    EXPECT_LE(static_cast<double>(cost.padding_elements), 0.05 * static_cast<double>(elements));
    // Stacked assigns ceil(K / 8) of each shape: 6 of 48 and twice 2 of 12, or 12 and twice 3.
    EXPECT_NEAR(stacked_balance(params, 8), depth == 12 ? 0.833 : 1.0, 0.5e-3);
  }
}

TEST(ShardingPlan, EqualLayersAreAssignedWithoutRemainder) {
  for (const auto& [layers, width] : {std::pair{12, 768}, std::pair{24, 1536}}) {
    const std::vector<ParamSpec> params = gpt_params(layers, width);
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, 8, "balanced");
    const optim::PlanCost cost = optim::plan_cost(plan, params);
    // Four layers are 8 matrices of 4 n^2 and 16 of n^2 elements: one of the former and two of the
    // latter per rank are equal bytes and equal FLOPs.
    EXPECT_EQ(std::ranges::count(plan.buckets, optim::UpdateRule::kMuon, &optim::Bucket::rule),
              layers / 4);
    EXPECT_DOUBLE_EQ(cost.balance, 1.0);
    EXPECT_EQ(cost.padding_elements, 0);
  }
}

// Chunks of Parallel Muon need owners by FLOPs. With round-robin owners, the large matrices of
// every chunk are on some ranks, and the others wait.
TEST(ShardingPlan, ParallelMuonsOwnersAreBalancedByFlops) {
  const std::vector<ParamSpec> params = gpt_params(12, 768);
  const auto balance = [&](const char* strategy) {
    return optim::plan_cost(optim::make_sharding_plan(params, 8, strategy), params).balance;
  };
  EXPECT_DOUBLE_EQ(balance("parallel"), 1.0);
  EXPECT_LT(balance("parallel_round_robin"), 0.6);
}

// "all reduce-scatters first": a gather is enqueued before the update of the
// previous chunk returns.
TEST(ShardingPlan, ChunksOfParallelMuonArePipelinedByOrder) {
  const std::vector<ParamSpec> params = gpt_params(8, 128);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 4, "parallel");
  const optim::Bucket* last = nullptr;
  int chunks = 0;
  for (const optim::Bucket& bucket : plan.buckets) {
    if (bucket.exchange == optim::Exchange::kNone) continue;
    if (last != nullptr && &bucket == last + 1) {  // no AdamW bucket in between
      EXPECT_GT(bucket.exchange_tag, last->exchange_tag);
      EXPECT_LT(bucket.exchange_tag, last->return_tag);
      ++chunks;
    }
    last = &bucket;
  }
  EXPECT_GT(chunks, 5);
}

TEST(ShardingPlan, BalanceStaysWithinTheBoundOfLongestFirst) {
  for (const int layers : {3, 6, 7, 12, 14})
    for (int world = 2; world <= 16; ++world) {
      const std::vector<ParamSpec> params = gpt_params(layers, 128);
      const double balance =
          optim::plan_cost(optim::make_sharding_plan(params, world, "balanced"), params).balance;
      EXPECT_GE(balance, stacked_balance(params, world) * (1 - 1e-9));
      // Graham: in the bucket of all layers, which is always a candidate, the busiest rank has at
      // most the mean plus one largest matrix (90 of a layer's 300 units). The choice also
      // considers bytes and early buckets, which may cost another half of the mean.
      const double mean = 300.0 * static_cast<double>(layers) / world;
      EXPECT_GE(balance, mean / (1.5 * mean + 90.0)) << layers << " layers, world " << world;
    }
}

// The thin matrix has a quarter of the bytes and 1.5 % of the FLOPs. With equal bytes, its owner
// would get none of the small matrices, and the other rank would have 1 % more FLOPs than if both
// ranks had two of them.
TEST(ShardingPlan, BalanceComesBeforeEqualBytes) {
  std::vector<ParamSpec> params;
  const auto add = [&](int count, const Shape& shape) {
    for (int i = 0; i < count; ++i)
      params.push_back({.name = concat("h.0.p", params.size()), .shape = shape, .layer = 0});
  };
  add(2, {256, 256});
  add(4, {16, 1024});
  add(1, {4, 17000});
  number_in_model_order(params);
  EXPECT_GE(optim::plan_cost(optim::make_sharding_plan(params, 2, "balanced"), params).balance,
            stacked_balance(params, 2));
}

// The time is printed and has no limit: `muograph plan` of such a model should take seconds.
TEST(ShardingPlan, TenThousandMatricesOnAThousandRanks) {
  if (!test::Drawn(3).runs_next()) GTEST_SKIP() << "not drawn (MUO_DRAW)";
  const std::vector<ParamSpec> params = gpt_params(1667, 256);
  double stacked = 0;
  double balanced = 0;
  for (const std::string_view strategy : optim::strategy_names()) {
    const auto start = std::chrono::steady_clock::now();
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, 1024, strategy);
    const optim::PlanCost cost = optim::plan_cost(plan, params);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    optim::check_sharding_plan(plan, params);
    std::cout << strategy << ": " << seconds.count() << " s, " << plan.buckets.size()
              << " buckets, balance " << cost.balance << "\n";
    if (strategy == "stacked") stacked = cost.balance;
    if (strategy == "balanced") balanced = cost.balance;
  }
  EXPECT_GE(balanced, stacked * (1 - 1e-9));
}

TEST(ShardingPlan, PublishesInTheOrderOfForward) {
  const std::vector<ParamSpec> params = gpt_params(8, 128);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 4, "balanced");
  int last = -1;
  Tag tag = plan.totals_tag;
  for (const std::size_t b : plan.publish_order) {
    int use = 1 << 30;
    for (const optim::Unit& unit : plan.buckets[b].units)
      use = std::min(use, params[unit.param].use);
    EXPECT_GT(use, last);
    EXPECT_GT(plan.buckets[b].publish_tag, tag);
    last = use;
    tag = plan.buckets[b].publish_tag;
  }
}

TEST(ShardingPlan, PublishesFirstIfPipelined) {
  const std::vector<ParamSpec> params = gpt_params(8, 128);
  const optim::ShardingPlan simple = optim::make_sharding_plan(params, 4, "balanced");
  const optim::ShardingPlan plan =
      optim::make_sharding_plan(params, 4, "balanced", {}, optim::Gather::kPipelined);
  optim::check_sharding_plan(plan, params);
  EXPECT_EQ(plan.publish_order, simple.publish_order);
  Tag tag = 0;
  for (const std::size_t b : plan.publish_order)
    EXPECT_EQ(plan.buckets[b].publish_tag, ++tag);
  EXPECT_EQ(plan.buckets.front().reduce_tag, ++tag);
}

TEST(ShardingPlan, UnknownStrategyNamesTheKnownOnes) {
  const std::vector<ParamSpec> params = toy_params(1);
  EXPECT_THAT(message_of<InputError>(
                  [&] { static_cast<void>(optim::make_sharding_plan(params, 2, "zero3")); }),
              testing::AllOf(HasSubstr("zero3"), HasSubstr("balanced"), HasSubstr("ddp"),
                             HasSubstr("stacked")));
}

TEST(ShardingPlan, EveryStrategyHasARowInTheDocumentation) {
  const std::string page = read_file(source_directory() + "/docs/strategies.md");
  for (const std::string_view name : optim::strategy_names())
    EXPECT_THAT(page, HasSubstr(concat("\n| `", name, "`"))) << name;
}

TEST(ShardingPlan, MuonUpdatesMatricesOnly) {
  const std::vector<ParamSpec> params = {{.name = "bias", .shape = {7}}};
  EXPECT_THROW(static_cast<void>(optim::make_sharding_plan(params, 2, "stacked")), Error);
}

// Plants a defect into a valid plan, and returns the message of check_sharding_plan.
template <class Plant>
std::string defect(const optim::ShardingPlan& valid, const std::vector<ParamSpec>& params,
                   const Plant& plant) {
  optim::check_sharding_plan(valid, params);
  optim::ShardingPlan plan = valid;
  plant(plan);
  return message_of<Error>([&] { optim::check_sharding_plan(plan, params); });
}

class PlantedDefect : public testing::Test {
 protected:
  std::vector<ParamSpec> params_ = toy_params();
  optim::ShardingPlan plan_ = optim::make_sharding_plan(params_, 3, "balanced");
  // A bucket of owned matrices with several units on rank 0.
  static optim::Bucket& owned(optim::ShardingPlan& plan) {
    return *std::ranges::find_if(plan.buckets, [](const optim::Bucket& b) {
      return b.rule == optim::UpdateRule::kMuon && b.units.size() > 3 && b.units[1].owner == 0;
    });
  }
  static optim::Bucket& sliced(optim::ShardingPlan& plan) {
    return *std::ranges::find_if(plan.buckets, [](const optim::Bucket& b) {
      return b.rule == optim::UpdateRule::kAdamW && b.units.size() == 3 && b.units[0].owner == 0;
    });
  }
};

TEST_F(PlantedDefect, Overlap) {
  EXPECT_THAT(
      defect(plan_, params_,
             [](optim::ShardingPlan& p) { owned(p).units[1].offset = owned(p).units[0].offset; }),
      HasSubstr("overlap"));
}

TEST_F(PlantedDefect, Gap) {
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { --sliced(p).units[0].end; }),
              HasSubstr("gap"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { --sliced(p).units.back().end; }),
              HasSubstr("no unit updates"));
}

TEST_F(PlantedDefect, ForeignSegment) {
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { owned(p).units[0].owner = 1; }),
              HasSubstr("outside its owner's segment"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { owned(p).units[0].owner = 3; }),
              HasSubstr("owner"));
}

TEST_F(PlantedDefect, GatherAtTheOtherEndOfTheStep) {
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { p.gather = optim::Gather::kPipelined; }),
      HasSubstr("published after a reduction"));
  EXPECT_THAT(defect(pipelined(plan_), params_,
                     [](optim::ShardingPlan& p) { p.gather = optim::Gather::kSimple; }),
              HasSubstr("published before the totals"));
}

TEST_F(PlantedDefect, Tags) {
  EXPECT_THAT(
      defect(plan_, params_,
             [](optim::ShardingPlan& p) { p.buckets[0].publish_tag = p.buckets[1].publish_tag; }),
      HasSubstr("publi"));
  EXPECT_THAT(
      defect(plan_, params_,
             [](optim::ShardingPlan& p) { p.buckets[1].reduce_tag = p.buckets[0].reduce_tag; }),
      HasSubstr("order"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { p.buckets[0].reduce_tag = 0; }),
              HasSubstr("order"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { p.totals_tag = 1; }),
              HasSubstr("totals"));
  // A gather has one tag for every rank; the next collective must not use any of them.
  const optim::ShardingPlan gathered = plan_gather_to_owner(params_, 3, 5);
  EXPECT_THAT(defect(gathered, params_,
                     [](optim::ShardingPlan& p) {
                       auto& bucket = *std::ranges::find_if(
                           p.buckets, [](const optim::Bucket& b) { return b.exchange_tag != 0; });
                       bucket.return_tag = bucket.exchange_tag + 1;
                     }),
              HasSubstr("share tag"));
}

TEST_F(PlantedDefect, MissingAndDoubledParameters) {
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { owned(p).units.erase(owned(p).units.begin()); }),
              HasSubstr("no unit updates"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) {
                       const optim::Bucket again = owned(p);
                       p.buckets.push_back(again);
                     }),
              HasSubstr("updated twice"));
}

TEST_F(PlantedDefect, ForeignRuleAndSplitMatrix) {
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { owned(p).rule = optim::UpdateRule::kAdamW; }),
              HasSubstr("rule"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { --owned(p).units[0].end; }),
              HasSubstr("whole matrix"));
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { ++sliced(p).units[0].adam_group; }),
      HasSubstr("AdamW group"));
}

TEST_F(PlantedDefect, CombinationsThatTheExecutorDoesNotSupport) {
  EXPECT_THAT(
      defect(plan_, params_,
             [](optim::ShardingPlan& p) { owned(p).exchange = optim::Exchange::kAllToAll; }),
      HasSubstr("state at the owner"));
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { owned(p).gradient_wire = DType::kF64; }),
      HasSubstr("number formats"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { owned(p).gradient_dtype = DType::kBF16; }),
              HasSubstr("bf16 weights"));
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { owned(p).replica_dtype = DType::kBF16; }),
      HasSubstr("sent in the replica's dtype"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) {
                       owned(p).replica_dtype = owned(p).weight_wire = DType::kBF16;
                     }),
              HasSubstr("number class"));
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { ++owned(p).segments[2]; }),
              HasSubstr("equal segments"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { owned(p).publish = optim::Publish::kNone; }),
              HasSubstr("publishes"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) {
                       owned(p).replica = optim::ReplicaAt::kCommon;
                       owned(p).weight_wire = DType::kBF16;
                     }),
              HasSubstr("common replica"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { sliced(p).state = optim::StateAt::kElements; }),
              HasSubstr("Muon"));
}

TEST_F(PlantedDefect, BlocksOfUnitsCutOneByOne) {
  const optim::ShardingPlan spread = optim::make_sharding_plan(params_, 3, "all_to_all");
  // The bucket of gates, which have 72 elements each, in three parts of 64.
  const auto bucket = [&](optim::ShardingPlan& p) -> optim::Bucket& {
    return *std::ranges::find_if(p.buckets, [&](const optim::Bucket& b) {
      return b.cut == optim::Cut::kEachUnit && params_[b.units[0].param].shape == Shape{6, 12};
    });
  };
  EXPECT_THAT(
      defect(spread, params_, [&](optim::ShardingPlan& p) { bucket(p).units[1].offset += 1; }),
      HasSubstr("divided equally"));
  EXPECT_THAT(
      defect(spread, params_, [&](optim::ShardingPlan& p) { bucket(p).units[1].offset += 3; }),
      HasSubstr("equal blocks"));
  EXPECT_THAT(defect(spread, params_,
                     [&](optim::ShardingPlan& p) {
                       std::swap(bucket(p).units[0].owner, bucket(p).units[1].owner);
                     }),
              HasSubstr("in rank order"));
  EXPECT_THAT(defect(spread, params_,
                     [&](optim::ShardingPlan& p) { bucket(p).returns = optim::Return::kScatter; }),
              HasSubstr("return by all-to-all"));
  EXPECT_THAT(
      defect(spread, params_, [&](optim::ShardingPlan& p) { bucket(p).cut = optim::Cut::kWhole; }),
      HasSubstr("cut of each unit"));
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { owned(p).cut = optim::Cut::kEachUnit; }),
      HasSubstr("cut of each unit"));
}

TEST_F(PlantedDefect, PublishOrder) {
  EXPECT_THAT(defect(plan_, params_, [](optim::ShardingPlan& p) { p.publish_order.pop_back(); }),
              HasSubstr("lacks"));
  EXPECT_THAT(defect(plan_, params_,
                     [](optim::ShardingPlan& p) { p.publish_order[0] = p.publish_order[1]; }),
              HasSubstr("twice"));
  EXPECT_THAT(
      defect(plan_, params_, [](optim::ShardingPlan& p) { std::ranges::reverse(p.publish_order); }),
      HasSubstr("not published in the order of"));
}

}  // namespace
}  // namespace muo::test
