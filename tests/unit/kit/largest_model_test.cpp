#include "kit/plan/largest_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "support/drawn.h"
#include "support/errors.h"
#include "trainer/run/backend.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {
namespace {

using testing::HasSubstr;

trainer::PlanOptions asked(std::int64_t bytes, bool host) {
  trainer::PlanOptions options;
  options.kind = trainer::PlanKind::kLargest;
  options.memory = ByteSize{bytes};
  if (host) options.train.devices.backend = trainer::Backend::kHost;
  options.train.devices.count = 2;
  options.train.model.set(&model::GptConfig::seq_len, 256);
  options.train.batch.total_tokens = 2 * 256 * 32;
  return options;
}

// Plans the model as a run with all micro-steps.
std::int64_t rank_bytes(const trainer::PlanOptions& options, const LargestModel& model,
                        std::int64_t depth) {
  trainer::TrainOptions o = options.train;
  o.model.depth = depth;
  o.batch.device_rows = 1;
  o.memory.recompute = model.recompute;
  o.sharding.shard = model.shard;
  const bool host = o.devices.backend == trainer::Backend::kHost;
  if (!host) {
    o.devices.backend = trainer::Backend::kHost;
    if (model.shard != optim::Shard::kWeights) o.sharding.replicas = optim::ReplicaAt::kEveryRank;
    o.numbers.dtype = DType::kBF16;
  }
  trainer::RunConfig run = trainer::resolve(o, data::corpus_without_tokens(o.data));
  return trainer::plan_run_memory(run).rank_bytes(2);
}

TEST(LargestModel, FitsAndTheNextDepthDoesNot) {
  test::Drawn drawn(2);
  for (const bool host : {true, false}) {
    if (!drawn.runs_next(!host)) continue;
    const trainer::PlanOptions options = asked(
        host ? 300'000'000 : trainer::kLibraryMemory + trainer::kContextMemory + 300'000'000, host);
    const LargestModels found = find_largest_models(options);
    EXPECT_EQ(found.dtype, host ? "fp32" : "bf16");
    EXPECT_EQ(found.devices, 2);
    ASSERT_EQ(found.models.size(), 3 * kNames<optim::Shard>.size());
    EXPECT_TRUE(host || found.available == 300'000'000);
    for (const LargestModel& each : found.models) {
      SCOPED_TRACE(concat(name_of(each.shard), ", ", name_of(each.recompute)));
      EXPECT_GE(each.depth, 2);
      EXPECT_EQ(rank_bytes(options, each, each.depth), each.bytes);
      EXPECT_LE(each.bytes, found.available);
      EXPECT_GT(rank_bytes(options, each, each.depth + 1), found.available);
    }
    EXPECT_GT(found.models.back().depth, found.models.front().depth);
    EXPECT_EQ(found.models.front().extra_time, 0);
    EXPECT_GT(found.models.back().extra_time, found.models[4].extra_time);
  }
}

TEST(LargestModel, OfThisMachineUsesItsDevices) {
  trainer::PlanOptions options = asked(0, true);
  options.memory.reset();
  options.train.data.vocab_size = 50304;
  const LargestModels found = find_largest_models(options);
  EXPECT_TRUE(found.is_of_this_machine && found.host);
  EXPECT_EQ(found.devices, 2);
  EXPECT_NEAR(static_cast<double>(found.memory), static_cast<double>(available_memory().bytes) / 2,
              1e9);
  EXPECT_THAT(largest_table(found),
              testing::ContainsRegex("on 2 host devices of this machine with .* each, in fp32, "
                                     "with a vocabulary of 50.?.?.?304:"));
}

TEST(LargestModel, TableOmitsRowsThatAreNoDeeper) {
  using enum optim::Shard;
  using model::Recomputed;
  const auto row = [](optim::Shard shard, Recomputed recompute, std::int64_t depth) {
    return LargestModel{.shard = shard, .recompute = recompute, .depth = depth};
  };
  LargestModels found;
  found.models = {row(kNone, Recomputed::kNone, 31), row(kNone, Recomputed::kBlock, 31),
                  row(kOptimizer, Recomputed::kNone, 32), row(kOptimizer, Recomputed::kMlp, 33),
                  row(kWeights, Recomputed::kNone, 32)};
  const std::string table = largest_table(found);
  for (const char* depth : {" 31 ", " 32 ", " 33 "}) {
    const std::size_t at = table.find(depth);
    EXPECT_NE(at, std::string::npos) << depth << table;
    EXPECT_EQ(table.find(depth, at + 1), std::string::npos) << depth << table;
  }
}

TEST(LargestModel, IsEmptyIfNoLayerFits) {
  const trainer::PlanOptions options = asked(1'000'000, true);
  const LargestModels found = find_largest_models(options);
  EXPECT_EQ(found.models.size(), 3 * kNames<optim::Shard>.size());
  for (const LargestModel& each : found.models)
    EXPECT_EQ(each.depth, 0);
}

TEST(LargestModel, OmitsWhatAStrategyCannotShard) {
  trainer::PlanOptions options = asked(200'000'000, true);
  options.train.sharding.strategy = "ddp";
  const LargestModels found = find_largest_models(options);
  EXPECT_EQ(found.models.size(), 3U);
  ASSERT_EQ(found.notes.size(), kNames<optim::Shard>.size() - 1);
  EXPECT_THAT(found.notes[0], HasSubstr("--strategy ddp cannot shard more than none"));
  EXPECT_THAT(largest_table(found), HasSubstr("--shard weights: --strategy ddp cannot"));
  const auto json = nlohmann::json::parse(largest_json(found));
  EXPECT_EQ(json["models"][2]["shard"], "none");
  EXPECT_EQ(json["models"][2]["recompute"], "block");
  EXPECT_EQ(json["models"][2]["depth"], found.models[2].depth);
  EXPECT_EQ(json["backend"], "host");
}

TEST(LargestModel, NamesTheOptionToOmit) {
  const auto refusal = [](const trainer::PlanOptions& options) {
    return test::message_of<InputError>([&] { find_largest_models(options); });
  };
  trainer::PlanOptions options = asked(1 << 30, true);
  options.train.model.set(&model::GptConfig::n_embd, 64);
  EXPECT_THAT(refusal(options), HasSubstr("omit --n-embd"));
}

}  // namespace
}  // namespace muo::kit
