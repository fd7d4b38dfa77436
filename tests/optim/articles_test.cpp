// The memory tables of two articles that this program's strategies come from, and what holds; both
// are in docs/strategies.md.
#include <gtest/gtest.h>

#include <array>

#include "optim/sharded_step.h"
#include "runtime/arena.h"
#include "runtime/trace.h"
#include "support/plans.h"

namespace muo::test {
namespace {

struct RankBytes {
  std::array<double, kMemoryCategories> of{};
  [[nodiscard]] double operator[](MemoryCategory category) const {
    return of.at(static_cast<std::size_t>(category));
  }
  [[nodiscard]] double state() const {
    return (*this)[MemoryCategory::kMomentum] + (*this)[MemoryCategory::kAdamState];
  }
};

// What rank 0 holds, as its arena counts it.
RankBytes rank_bytes(const std::vector<ParamSpec>& params, int world, const char* strategy) {
  const ShardingPlan plan = make_sharding_plan(params, world, strategy);
  TracingRank tracing(0, world);
  TraceArena arena(0);
  const ShardedStep step(tracing.context(), plan, params, arena);
  RankBytes bytes;
  for (const TensorSpec& spec : arena.specs())
    bytes.of.at(static_cast<std::size_t>(spec.category)) +=
        static_cast<double>(spec.shape.numel() * size_of(spec.dtype));
  return bytes;
}

// "Distributed Muon" gives P (1 + 2 / N) a rank: weights, and N-th parts of gradients and momentum.
// Backward writes every gradient on every rank before it is reduced, so it is P (2 + 1 / N), with
// the reduced part beside it P (2 + 2 / N). DDP's 3 P holds.
TEST(Articles, MemoryOfDistMuonIncludesWholeGradients) {
  std::vector<ParamSpec> params;
  params.reserve(128);
  for (int i = 0; i < 128; ++i)
    params.push_back({.name = "h." + std::to_string(i) + ".w", .shape = {64, 64}});
  number_in_model_order(params);
  const double p = 128 * 64 * 64 * 4;
  const double variance = 1.0 / 64;  // a row's for every row, of the momentum
  for (const int world : {2, 4, 8, 16, 64}) {
    const RankBytes sharded = rank_bytes(params, world, "block_cyclic");
    EXPECT_EQ(sharded[MemoryCategory::kWeights], p);
    EXPECT_EQ(sharded[MemoryCategory::kGradients], p);
    EXPECT_EQ(sharded[MemoryCategory::kMomentum], p / world * (1 + variance));
    EXPECT_EQ(sharded[MemoryCategory::kStaging], p / world);
    const RankBytes replicated = rank_bytes(params, world, "ddp");
    EXPECT_EQ(replicated[MemoryCategory::kWeights] + replicated[MemoryCategory::kGradients] +
                  replicated[MemoryCategory::kMomentum],
              p * (3 + variance));
  }
}

// "124M parameters on 4 GPUs": 496 MB of weights and 544 MB of state, a quarter of it when sharded.
TEST(Articles, StateOfGpt2IsLargerThanTold) {
  std::vector<ParamSpec> params;
  params.push_back({.name = "wte", .shape = {50257, 768}, .role = ParamRole::kEmbedding});
  params.push_back({.name = "wpe", .shape = {1024, 768}, .role = ParamRole::kEmbedding});
  for (int l = 0; l < 12; ++l) {
    const std::string layer = "h." + std::to_string(l) + ".";
    params.push_back({.name = layer + "attn.c_attn", .shape = {2304, 768}});
    params.push_back({.name = layer + "attn.c_proj", .shape = {768, 768}});
    params.push_back({.name = layer + "mlp.c_fc", .shape = {3072, 768}});
    params.push_back({.name = layer + "mlp.c_proj", .shape = {768, 3072}});
  }
  number_in_model_order(params);
  constexpr double kMB = 1e6;
  const RankBytes replicated = rank_bytes(params, 4, "ddp");
  EXPECT_NEAR(replicated[MemoryCategory::kWeights] / kMB, 497, 1);
  EXPECT_NEAR(replicated[MemoryCategory::kGradients] / kMB, 497, 1);
  EXPECT_NEAR(replicated.state() / kMB, 655, 1);
  const RankBytes sharded = rank_bytes(params, 4, "stacked");
  EXPECT_NEAR(sharded[MemoryCategory::kWeights] / kMB, 497, 1);
  EXPECT_NEAR(sharded[MemoryCategory::kGradients] / kMB, 497, 1);
  EXPECT_NEAR(sharded.state() / kMB, 164, 1);
}

}  // namespace
}  // namespace muo::test
