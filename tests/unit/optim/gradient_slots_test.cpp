// Memory of gradients on a rank with Shard::kGradients.
#include "optim/gradient_slots.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "optim/sharded_step.h"
#include "runtime/tracing_rank.h"
#include "support/plans.h"

namespace muo::test {
namespace {

// The parameters of a GPT in the order in which the backward pass completes them: value embeddings
// in every other layer, between its matrices.
std::vector<ParamSpec> gpt_like(int layers, std::int64_t width, std::int64_t vocab) {
  std::vector<ParamSpec> params;
  int l = kNoLayer;
  const auto add = [&](const std::string& name, const Shape& shape, ParamRole role) {
    params.push_back({.name = name, .shape = shape, .role = role, .layer = l});
  };
  add("wte", {vocab, width}, ParamRole::kEmbedding);
  add("resid_lambdas", {layers}, ParamRole::kResidLambda);
  for (l = 0; l < layers; ++l) {
    const std::string layer = "h." + std::to_string(l) + ".";
    if (l % 2 == 1) add(layer + "value_embed", {vocab, width}, ParamRole::kEmbedding);
    for (const char* name : {"c_q", "c_k", "c_v", "c_proj"})
      add(layer + name, {width, width}, ParamRole::kMatrix);
    add(layer + "c_fc", {4 * width, width}, ParamRole::kMatrix);
    add(layer + "mlp_proj", {width, 4 * width}, ParamRole::kMatrix);
  }
  l = kNoLayer;
  add("lm_head", {vocab, width}, ParamRole::kUnembedding);
  number_in_model_order(params);
  return params;
}

optim::ShardingPlan sharded_plan(const std::vector<ParamSpec>& params, int world,
                                 std::string_view strategy) {
  optim::ShardingPlan plan = optim::make_sharding_plan(params, world, strategy);
  plan.shard = optim::Shard::kGradients;
  optim::assign_tags(plan);
  return plan;
}

// Bytes of gradients in the arena of `rank`, and the two terms of their bound.
struct GradientBytes {
  std::int64_t held = 0;
  std::int64_t shards = 0;
  std::int64_t three_buckets = 0;  // bytes of the three largest buckets
};
GradientBytes gradient_bytes(const std::vector<ParamSpec>& params, const optim::ShardingPlan& plan,
                             int rank) {
  TracingRank tracing(rank, plan.world);
  TraceArena arena(rank);
  const optim::ShardedStep step(tracing.context(), plan, params, arena);
  GradientBytes bytes;
  for (const TensorSpec& spec : arena.specs())
    if (spec.category == MemoryCategory::kGradients)
      bytes.held += spec.shape.numel() * size_of(spec.dtype);
  std::vector<std::int64_t> whole;
  for (const optim::Bucket& bucket : plan.buckets) {
    whole.push_back(bucket.full_elements() * 4);
    bytes.shards += bucket.reduction == optim::Reduction::kAllReduce
                        ? 2 * whole.back()  // small parameters: their sum, and that of a micro-step
                        : bucket.segments[static_cast<std::size_t>(rank)] * 4;
  }
  std::ranges::sort(whole, std::greater<>());
  whole.resize(3);
  bytes.three_buckets = whole[0] + whole[1] + whole[2];
  return bytes;
}

// For strategies whose buckets follow the backward pass: one bucket is written while one is
// reduced, and a bucket of several layers may be open all the time.
TEST(GradientSlots, AreNoMoreThanTheShardsAndThreeBuckets) {
  for (const std::int64_t vocab : {64, 4096}) {
    const std::vector<ParamSpec> params = gpt_like(12, 64, vocab);
    for (const char* strategy : {"balanced", "layerwise", "ns_replicated"})
      for (const int world : {2, 3, 4, 8}) {
        const optim::ShardingPlan plan = sharded_plan(params, world, strategy);
        for (int rank = 0; rank < world; ++rank) {
          const GradientBytes bytes = gradient_bytes(params, plan, rank);
          EXPECT_LE(bytes.held, bytes.shards + bytes.three_buckets)
              << strategy << ", world " << world << ", vocabulary " << vocab;
        }
      }
  }
}

// "Distributed Muon": P (1 + 2 / N) for weights, gradients and momentum. In addition, there are two
// buckets of N matrices each, and a factored variance for every row of 64.
TEST(GradientSlots, MatchTheMemoryOfDistMuonExceptForTwoBuckets) {
  std::vector<ParamSpec> params;
  params.reserve(128);
  for (int i = 0; i < 128; ++i)
    params.push_back({.name = "h." + std::to_string(i) + ".w", .shape = {64, 64}});
  number_in_model_order(params);
  const std::int64_t matrix = std::int64_t{64} * 64 * 4;
  const std::int64_t p = 128 * matrix;
  for (const int world : {2, 4, 8, 16, 64}) {
    const optim::ShardingPlan plan = sharded_plan(params, world, "block_cyclic");
    TracingRank tracing(0, world);
    TraceArena arena(0);
    const optim::ShardedStep step(tracing.context(), plan, params, arena);
    std::int64_t held = 0;
    for (const TensorSpec& spec : arena.specs())
      if (spec.category == MemoryCategory::kWeights ||
          spec.category == MemoryCategory::kGradients || spec.category == MemoryCategory::kMomentum)
        held += spec.shape.numel() * size_of(spec.dtype);
    EXPECT_EQ(held, p + 2 * p / world + 2 * matrix * world + p / world / 64) << world;
  }
}

// Buckets of a slot are never written at the same time, whatever the strategy is. Slots have at
// most the size of the largest bucket times the number of buckets written at a time plus one that
// is being reduced.
TEST(GradientSlots, TakeTurns) {
  const std::vector<ParamSpec> params = gpt_like(7, 32, 256);
  for (const std::string_view strategy : optim::strategy_names()) {
    const optim::ShardingPlan plan = sharded_plan(params, 3, strategy);
    const optim::GradientSlots slots = optim::gradient_slots(plan, params);
    ASSERT_EQ(slots.of_bucket.size(), plan.buckets.size());
    std::vector<int> written(params.size(), 0);  // number of buckets, at each point of backward
    std::int64_t bytes = 0, largest = 0;         // of buckets that share slots
    for (std::size_t slot = 0; slot < slots.bytes.size(); ++slot) {
      std::vector<int> writers(params.size(), 0);  // at each point of backward
      bool alone = false;
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        if (slots.of_bucket[b] != slot) continue;
        EXPECT_LE(4 * plan.buckets[b].full_elements(), slots.bytes[slot]);
        int first = static_cast<int>(params.size());
        int last = 0;
        for (const optim::Unit& unit : plan.buckets[b].units) {
          first = std::min(first, params[unit.param].ready);
          last = std::max(last, params[unit.param].ready);
        }
        const bool all_reduced = plan.buckets[b].reduction == optim::Reduction::kAllReduce;
        if (!all_reduced) largest = std::max(largest, slots.bytes[slot]);
        alone = alone || all_reduced;
        for (int t = first; t <= last; ++t) {
          EXPECT_EQ(++writers[static_cast<std::size_t>(t)], 1) << strategy << ", slot " << slot;
          if (!all_reduced) ++written[static_cast<std::size_t>(t)];
        }
      }
      if (!alone) bytes += slots.bytes[slot];
    }
    EXPECT_LE(bytes, largest * (std::ranges::max(written) + 1)) << strategy;
  }
}

}  // namespace
}  // namespace muo::test
