#include "optim/number_formats.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/split_tensor.h"
#include "support/tolerance.h"
#include "support/toy_step.h"

// bf16 replicas, wires and moments in the sharded step: which tensors have which formats, and that
// nothing else changes.
namespace muo::test {
namespace {

constexpr auto kBF16 = DType::kBF16;
constexpr optim::NumberFormats kLean{
    .momentum_state = kBF16, .adam_state = kBF16, .split_masters = true};

ToyRun toy(int world, std::string_view strategy, DType replica,
           const optim::NumberFormats& formats) {
  ToyRun run;
  run.world = world;
  run.params = toy_params(3, replica);
  run.plan = optim::make_sharding_plan(run.params, world, strategy, formats);
  run.steps = 3;
  return run;
}

// Whole logical tensors, assembled from the ranks' parts; copies of a part must agree.
std::map<std::string, std::vector<float>> whole_state(const std::vector<ToyRank>& ranks) {
  std::map<std::string, std::vector<float>> whole;
  for (const ToyRank& rank : ranks)
    for (const ToyEntry& entry : rank.state) {
      std::vector<float>& to = whole[entry.name];
      to.resize(static_cast<std::size_t>(entry.shape.numel()));
      if (entry.writer)
        std::copy(entry.values.begin(), entry.values.end(), to.begin() + entry.begin);
    }
  return whole;
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& v : values)
    v = to_f32(to_bf16(v));
  return values;
}

// Distance of two runs, relative to the distance of the second one from the initial weights.
double relative_change(const std::vector<float>& got, const std::vector<float>& want,
                       const ParamSpec& param) {
  const std::vector<float> initial = toy_weights(param);
  std::vector<double> step;
  std::vector<float> difference;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    step.push_back(static_cast<double>(want[i]) - static_cast<double>(initial[i]));
    difference.push_back(got[i] - want[i]);
  }
  return frobenius<float>(std::span<const float>(difference)) / frobenius<double>(step);
}

bool is_scalar(const ParamSpec& param) {
  return optim::number_class(param.role) == optim::NumberClass::kScalar;
}

TEST(NumberFormats, ReplicasAreTheRoundedMastersOnEveryRank) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const int world : {1, 2, 3}) {
      const ToyRun run = toy(world, strategy, kBF16, {});
      const std::vector<ToyRank> ranks = run_toy(run);
      const auto masters = whole_state(ranks);
      for (const ToyRank& rank : ranks)
        for (std::size_t i = 0; i < run.params.size(); ++i) {
          const std::vector<float>& master = masters.at(run.params[i].name);
          EXPECT_EQ(rank.weights[i], is_scalar(run.params[i]) ? master : rounded(master))
              << strategy << " world " << world << ": " << run.params[i].name;
          EXPECT_NE(master, toy_weights(run.params[i]));
        }
    }
}

TEST(NumberFormats, WeightsSentInBf16AreRoundedEverywhereAndMastersAreUnchanged) {
  for (const std::string_view strategy : {"balanced", "stacked"}) {
    const ToyRun wide = toy(3, strategy, DType::kF32, {});
    const ToyRun run = toy(3, strategy, DType::kF32, {.weight_wire = kBF16});
    const std::vector<ToyRank> ranks = run_toy(run);
    const auto masters = whole_state(ranks);
    for (const ToyRank& rank : ranks)
      for (std::size_t i = 0; i < run.params.size(); ++i) {
        const bool travels = !run.plan.buckets.empty() && run.params[i].shape.numel() >= 1024;
        const bool matrix = run.params[i].role == ParamRole::kMatrix;
        if (!travels && !matrix) continue;  // small ones are computed by every rank
        EXPECT_EQ(rank.weights[i], rounded(masters.at(run.params[i].name)))
            << strategy << ": " << run.params[i].name;
      }
    // The toy's gradients do not depend on the weights, so the rounding does not affect masters.
    EXPECT_EQ(masters, whole_state(run_toy(wide))) << strategy;
    EXPECT_LT(optim::plan_cost(run.plan, run.params).sent_bytes[0],
              optim::plan_cost(wide.plan, wide.params).sent_bytes[0]);
  }
}

// A reduce-scatter adds the rounded gradients in fp32, as if they had been rounded before.
TEST(NumberFormats, GradientsSentInBf16AreRoundedOnce) {
  for (const std::string_view strategy : {"balanced", "stacked"})
    for (const DType replica : {DType::kF32, kBF16}) {
      ToyRun narrow = toy(3, strategy, replica, {.gradient_wire = kBF16});
      ToyRun before = toy(3, strategy, replica, {});
      before.round_gradients = true;
      const auto got = whole_state(run_toy(narrow));
      const auto want = whole_state(run_toy(before));
      const auto exact = whole_state(run_toy(toy(3, strategy, replica, {})));
      for (const ParamSpec& param : narrow.params) {
        if (is_scalar(param)) {
          EXPECT_EQ(got.at(param.name), exact.at(param.name)) << param.name;
          continue;
        }
        EXPECT_EQ(got.at(param.name), want.at(param.name)) << strategy << ": " << param.name;
        EXPECT_NE(got.at(param.name), exact.at(param.name)) << strategy << ": " << param.name;
      }
    }
}

// It makes no difference whether gradients are rounded by the backward pass or when they are sent.
// On one rank, where nothing is sent, they are rounded as if by a reduction.
TEST(NumberFormats, GradientsOfBf16AreRoundedOnce) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const int world : {1, 2, 3}) {
      ToyRun rounded = toy(world, strategy, kBF16, {.gradient_wire = kBF16});
      rounded.round_gradients = world == 1;
      const auto got = whole_state(
          run_toy(toy(world, strategy, kBF16, {.gradients = kBF16, .gradient_wire = kBF16})));
      const auto want = whole_state(run_toy(rounded));
      for (const ParamSpec& param : rounded.params) {
        if (is_scalar(param) && world == 1) continue;  // stays fp32
        EXPECT_EQ(got.at(param.name), want.at(param.name)) << strategy << ": " << param.name;
      }
    }
}

// Plans with the same rounding steps are bitwise equal; see Bucket::gradient_wire.
TEST(NumberFormats, PlansWithTheSameRoundingsAreBitwiseEqual) {
  const auto matrices = [](const char* strategy, DType replica) {
    ToyRun run = toy(3, strategy, replica, {.gradient_wire = kBF16});
    std::map<std::string, std::vector<float>> out = whole_state(run_toy(run));
    std::erase_if(out, [](const auto& entry) { return !entry.first.starts_with("transformer.h"); });
    return out;
  };
  for (const DType replica : {DType::kF32, kBF16}) {
    const auto at_owner = matrices("balanced", replica);
    for (const char* strategy : {"block_cyclic", "stacked", "layerwise"})
      EXPECT_EQ(matrices(strategy, replica), at_owner) << strategy;
    EXPECT_EQ(matrices("allreduce_owner", replica), matrices("ddp", replica));
    const auto sent_back = matrices("parallel", replica);
    EXPECT_EQ(matrices("parallel_round_robin", replica), sent_back);
    EXPECT_EQ(matrices("all_to_all", replica), sent_back);
    EXPECT_NE(sent_back, at_owner);
    // Iterations in bf16 round their input anyway, and replicated ones send no update.
    EXPECT_EQ(matrices("ns_replicated", replica) == at_owner, replica == kBF16);
  }
}

// An update that is sent in bf16 has an error of at most one rounding of its own size, and the
// input of Newton-Schulz an error of at most one rounding of its largest element; the change of the
// weights differs by per cents.
TEST(NumberFormats, ExchangesInBf16StayWithinTheirRoundings) {
  for (const char* strategy : {"ns_replicated", "parallel", "all_to_all"}) {
    ToyRun narrow = toy(3, strategy, DType::kF32, {.gradient_wire = kBF16});
    ToyRun wide = toy(3, strategy, DType::kF32, {});
    wide.round_gradients = true;  // so that only the exchange differs
    narrow.steps = wide.steps = 1;
    const auto got = whole_state(run_toy(narrow));
    const auto want = whole_state(run_toy(wide));
    for (const ParamSpec& param : narrow.params) {
      if (param.role != ParamRole::kMatrix) continue;
      EXPECT_EQ(got.at(param.name + ".momentum"), want.at(param.name + ".momentum")) << param.name;
      const double apart = relative_change(got.at(param.name), want.at(param.name), param);
      EXPECT_LT(apart, 0.05) << strategy << ": " << param.name;
      EXPECT_GT(apart, 1e-4) << strategy << ": " << param.name;  // something was rounded
    }
  }
}

// An all-reduce rounds its result as well, so there are two roundings: of each rank's part and of
// the sum.
TEST(NumberFormats, AnAllReduceInBf16StaysWithinItsRoundings) {
  ToyRun narrow = toy(3, "ddp", DType::kF32, {.gradient_wire = kBF16});
  narrow.steps = 1;
  ToyRun wide = toy(3, "ddp", DType::kF32, {});
  wide.steps = 1;
  const std::vector<ToyRank> got = run_toy(narrow);
  const std::vector<ToyRank> want = run_toy(wide);
  // |g + e|^2 - |g|^2 with |e| <= u (sum of |g_r|) + u |g|; the parts of the toy's gradients cancel
  // by at most a factor of ten.
  EXPECT_NEAR(got[0].squares, want[0].squares, want[0].squares * 2 * 11 * kUnitBF16);
  EXPECT_NE(got[0].squares, want[0].squares);
  for (const ToyRank& rank : got)
    EXPECT_EQ(rank.weights, got[0].weights);
}

// AdamW does not read the replica, so its masters with bf16 replicas are bitwise those of an fp32
// run. Muon's iterations run in bf16, and their updates differ by per cents
// (docs/spec/optimizer.md, "Newton-Schulz"), not more.
TEST(NumberFormats, Bf16ReplicasChangeMuonsUpdatesByPerCentsAndAdamWsNotAtAll) {
  ToyRun narrow = toy(2, "balanced", kBF16, {});
  ToyRun wide = toy(2, "balanced", DType::kF32, {});
  narrow.steps = wide.steps = 1;
  const auto got = whole_state(run_toy(narrow));
  const auto want = whole_state(run_toy(wide));
  for (const ParamSpec& param : narrow.params) {
    if (optim::update_group(param.role).rule == optim::UpdateRule::kAdamW) {
      EXPECT_EQ(got.at(param.name), want.at(param.name)) << param.name;
      continue;
    }
    const double relative = relative_change(got.at(param.name), want.at(param.name), param);
    EXPECT_LT(relative, 0.16) << param.name;
    EXPECT_GT(relative, 1e-4) << param.name;  // something was rounded
  }
}

TEST(NumberFormats, OnlyMomentsOfEmbeddingsFollowTheEmbeddingState) {
  for (const std::string_view strategy : optim::strategy_names()) {
    const ToyRun run = toy(2, strategy, kBF16, {.embedding_state = kBF16});
    for (const ToyRank& rank : run_toy(run))
      for (const ToyEntry& entry : rank.state) {
        const bool moment = entry.name.ends_with(".adam_m") || entry.name.ends_with(".adam_v");
        const bool embedding = entry.name.find("wte") != std::string::npos;
        EXPECT_EQ(entry.dtype, moment && embedding ? kBF16 : DType::kF32) << entry.name;
      }
  }
}

// Momentum of matrices, and all moments except those of lambdas and gates.
TEST(NumberFormats, LeanStateIsUsedForMatricesAndLargeTensors) {
  for (const std::string_view strategy : optim::strategy_names()) {
    const ToyRun run = toy(2, strategy, kBF16, {.momentum_state = kBF16, .adam_state = kBF16});
    for (const ToyRank& rank : run_toy(run))
      for (const ToyEntry& entry : rank.state) {
        const auto param = std::ranges::find_if(run.params, [&](const ParamSpec& p) {
          return entry.name == p.name + ".momentum" || entry.name == p.name + ".adam_m" ||
                 entry.name == p.name + ".adam_v";
        });
        const bool narrow = param != run.params.end() && !is_scalar(*param);
        EXPECT_EQ(entry.dtype, narrow ? kBF16 : DType::kF32) << entry.name;
      }
  }
}

// Rounding depends on the element of the logical tensor, not on its holder or the division. The
// toy's gradients are sums over ranks, which are equal for all strategies of a world.
TEST(NumberFormats, LeanStateIsBitwiseEqualForAllStrategies) {
  for (const int world : {1, 3, 4})
    for (const DType replica : {DType::kF32, kBF16}) {
      const auto want = whole_state(run_toy(toy(world, "ddp", replica, kLean)));
      const auto wide = whole_state(run_toy(toy(world, "ddp", replica, {})));
      for (const ParamSpec& param : toy_params())
        for (const char* suffix : {".momentum", ".adam_m", ".adam_v"})
          if (const auto at = want.find(param.name + suffix);
              at != want.end() && param.name.find("zero") == std::string::npos) {
            EXPECT_EQ(at->second == wide.at(at->first), is_scalar(param)) << at->first;
          }
      for (const std::string_view strategy : optim::strategy_names())
        EXPECT_TRUE(whole_state(run_toy(toy(world, strategy, replica, kLean))) == want)
            << strategy << " world " << world;
    }
}

// State is rounded once per update, so after the first update it is within one spacing of bf16 from
// fp32.
TEST(NumberFormats, LeanStateIsWithinASpacingOfFp32AfterOneUpdate) {
  ToyRun lean = toy(2, "balanced", DType::kF32, kLean);
  ToyRun wide = toy(2, "balanced", DType::kF32, {});
  lean.steps = wide.steps = 1;
  const auto got = whole_state(run_toy(lean));
  for (const auto& [name, values] : whole_state(run_toy(wide)))
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_LT(std::abs(double{got.at(name)[i]} - double{values[i]}),
                2 * kUnitBF16 * std::abs(double{values[i]}) + 1e-40)
          << name;
}

// One number in 65536 is a tie, which moves by an ulp when it is stored, and propagates: a few
// numbers in three updates of 11,000 elements. The toy's gradients do not depend on the weights, so
// nothing else may differ.
TEST(NumberFormats, SplitMastersEqualFp32ExceptForTies) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const int world : {1, 3}) {
      SCOPED_TRACE(std::string(strategy) + " world " + std::to_string(world));
      const ToyRun run = toy(world, strategy, kBF16, {.split_masters = true});
      const std::vector<ToyRank> ranks = run_toy(run);
      const auto got = whole_state(ranks);
      const auto want = whole_state(run_toy(toy(world, strategy, kBF16, {})));
      std::size_t moved = 0;
      for (const auto& [name, values] : want)
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float is = got.at(name)[i];
          if (is == values[i]) continue;
          ++moved;
          EXPECT_LE(std::abs(double{is} - double{values[i]}),
                    4 * 2 * kUnitF32 * std::abs(double{values[i]}))
              << name;
          EXPECT_TRUE(name.ends_with(".weight")) << name;
        }
      EXPECT_LE(moved, 8U);
      for (const ToyRank& rank : ranks) {
        for (std::size_t i = 0; i < run.params.size(); ++i) {
          const std::vector<float>& master = got.at(run.params[i].name);
          EXPECT_TRUE(rank.weights[i] == (is_scalar(run.params[i]) ? master : rounded(master)))
              << run.params[i].name;
        }
        for (const ToyEntry& entry : rank.state)
          if (const auto param = std::ranges::find(run.params, entry.name, &ParamSpec::name);
              param != run.params.end()) {
            EXPECT_EQ(entry.dtype, is_scalar(*param) ? DType::kF32 : DType::kU16) << entry.name;
          }
      }
    }
}

TEST(NumberFormats, GraphAndEagerAreBitwiseEqual) {
  for (const std::string_view strategy : optim::strategy_names()) {
    ToyRun run = toy(3, strategy, kBF16,
                     {.gradient_wire = kBF16,
                      .weight_wire = kBF16,
                      .momentum_state = kBF16,
                      .embedding_state = kBF16});
    run.random_order_seed = 3;
    const auto graph = run_toy(run);
    run.graph = false;
    const auto eager = run_toy(run);
    EXPECT_EQ(whole_state(graph), whole_state(eager));
    for (std::size_t r = 0; r < graph.size(); ++r)
      EXPECT_EQ(graph[r].weights, eager[r].weights);
  }
}

}  // namespace
}  // namespace muo::test
