#include "optim/exposed_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/gpt_config.h"
#include "optim/strategies/strategies.h"
#include "support/plans.h"
#include "support/toy_step.h"

namespace muo::test {
namespace {

// Matrices of 64 x 64, 16 KiB each: the bytes that each of two ranks sends for a pair of them.
constexpr double kPairBytes = 64 * 64 * 4;
const double kMatrixFlops = optim::newton_schulz_flops({64, 64});

std::vector<ParamSpec> matrices(int count) {
  std::vector<ParamSpec> params;
  params.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    params.push_back({.name = "h." + std::to_string(i) + ".w", .shape = {64, 64}});
  number_in_model_order(params);
  return params;
}

// The link takes 4 ms for a pair, and an owner 3 ms for a matrix.
optim::MachineRates rates(double step_ms = 0) {
  return {.link_bytes_per_s = kPairBytes / 4e-3,
          .gemm_flops_per_s = kMatrixFlops / 3e-3,
          .step_s = 1e-3 * step_ms};
}

void expect_ms(const optim::ExposedTime& got, const optim::ExposedTime& want_ms) {
  EXPECT_NEAR(1e3 * got.communication_s, want_ms.communication_s, 1e-9);
  EXPECT_NEAR(1e3 * got.newton_schulz_s, want_ms.newton_schulz_s, 1e-9);
  EXPECT_NEAR(1e3 * got.update_s, want_ms.update_s, 1e-9);
  EXPECT_NEAR(1e3 * got.communication_exposed_s, want_ms.communication_exposed_s, 1e-9);
  EXPECT_NEAR(1e3 * got.newton_schulz_exposed_s, want_ms.newton_schulz_exposed_s, 1e-9);
}

// Reduction, computation and gather run one after the other.
TEST(ExposedTime, OfOneBucketIsAllItsTime) {
  const std::vector<ParamSpec> params = matrices(2);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 2, "block_cyclic");
  expect_ms(optim::exposed_time(plan, params, rates()), {8, 3, 11, 8, 3});
  optim::MachineRates slow = rates();
  slow.link_latency_s = 1e-3;  // for reduction, agreement and gather
  expect_ms(optim::exposed_time(plan, params, slow), {11, 3, 14, 11, 3});
}

// A step of 30 ms: the forward pass ends at 10; the backward pass completes the later pair at 20,
// the other at 30.
//   comm    20-24 reduce, 30-34 reduce, 37-41 gather, 41-45 gather
//   update  24-27, 34-37
TEST(ExposedTime, TheBackwardPassHidesEarlierWork) {
  const std::vector<ParamSpec> params = matrices(4);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 2, "block_cyclic");
  ASSERT_EQ(plan.buckets.size(), 2U);
  // Without the link: 30-33 update. Without products: 30-34 reduce, 34-42 gathers.
  expect_ms(optim::exposed_time(plan, params, rates(30)), {16, 6, 15, 12, 3});
  // No backward pass to overlap with: reductions until 8, update until 11, gathers until 19.
  expect_ms(optim::exposed_time(plan, params, rates()), {16, 6, 19, 13, 3});
  // Three micro-steps: the last backward pass runs from 23.333, its first half until 26.667.
  optim::MachineRates thrice = rates(30);
  thrice.accumulation = 3;
  expect_ms(optim::exposed_time(plan, params, thrice), {16, 6, 15.0 + 2.0 / 3, 12.0 + 2.0 / 3, 3});
}

// Commit lies between agreement and publication, and cannot overlap.
TEST(ExposedTime, OfTheCommitIsAllItsTime) {
  const std::vector<ParamSpec> params = matrices(4);
  optim::MachineRates machine = rates(30);
  for (const optim::ShardingPlan& plan :
       {optim::make_sharding_plan(params, 2, "block_cyclic"),
        pipelined(optim::make_sharding_plan(params, 2, "block_cyclic"))}) {
    machine.memory_bytes_per_s = optim::MachineRates{}.memory_bytes_per_s;
    const optim::ExposedTime free = optim::exposed_time(plan, params, machine);
    EXPECT_EQ(free.commit_s, 0);
    // Masters and momentum of two matrices, read and written, plus their updates and gradients;
    // and a vector of 64.
    const double bytes = 2.0 * (64 * 64 * 6 + 64 * 3) * 4;
    machine.memory_bytes_per_s = bytes / 5e-3;
    const optim::ExposedTime time = optim::exposed_time(plan, params, machine);
    EXPECT_NEAR(time.commit_s, 5e-3, 1e-12);
    EXPECT_NEAR(time.update_s, free.update_s + 5e-3, 1e-12);
    EXPECT_NEAR(time.communication_exposed_s, free.communication_exposed_s, 1e-12);
    EXPECT_NEAR(time.newton_schulz_exposed_s, free.newton_schulz_exposed_s, 1e-12);
  }
}

// The gathers end at 4 and 8. The forward pass waits for the first one until 4, and reads the
// second 5 later. Hence everything is 4 later: reductions 24-28 and 34-38, updates 28-31 and 38-41.
TEST(ExposedTime, ForwardHidesAPipelinedGather) {
  const std::vector<ParamSpec> params = matrices(4);
  const optim::ShardingPlan plan = pipelined(optim::make_sharding_plan(params, 2, "block_cyclic"));
  expect_ms(optim::exposed_time(plan, params, rates(30)), {16, 6, 11, 8, 3});
  // A loop waits for both gathers, until 8.
  optim::MachineRates looped = rates(30);
  looped.loop = true;
  expect_ms(optim::exposed_time(plan, params, looped), {16, 6, 15, 12, 3});
}

// The inputs of a pair are sent to their owners, and the updates are sent back: a rank receives
// half a matrix in 2 ms, and sends one meanwhile.
//   comm    0-4 reduce A, 4-6 inputs A, 6-10 reduce B, 10-12 inputs B, 13-15 updates A,
//           16-18 updates B, 18-26 weights
//   update  10-13 A (after B's reduced gradients on the stream), 13-16 B
TEST(ExposedTime, InputsTravelWhileTheBucketBeforeComputes) {
  const std::vector<ParamSpec> params = matrices(4);
  const optim::ShardingPlan plan = optim::make_sharding_plan(params, 2, "parallel");
  ASSERT_EQ(plan.buckets.size(), 2U);
  expect_ms(optim::exposed_time(plan, params, rates()), {24, 6, 26, 20, 2});
}

std::vector<double> all_times(const optim::ExposedTime& time) {
  return {time.communication_s, time.newton_schulz_s, time.update_s, time.communication_exposed_s,
          time.newton_schulz_exposed_s};
}

class ExposedTimeOfPlans : public ::testing::TestWithParam<int> {};

TEST_P(ExposedTimeOfPlans, SatisfiesInvariantsOfAllMachines) {
  const std::vector<ParamSpec> params = toy_params();
  for (optim::ShardingPlan plan : all_plans(params, GetParam()))
    for (const bool at_head : {false, true})
      for (const double step_ms : {0.0, 10.0}) {
        if (at_head) plan = pipelined(plan);
        SCOPED_TRACE(plan.strategy + (at_head ? ", pipelined, " : ", ") + std::to_string(step_ms));
        optim::MachineRates machine = rates(step_ms);
        machine.link_latency_s = 1e-5;
        const auto with = [&](double optim::MachineRates::*rate, double factor) {
          optim::MachineRates other = machine;
          other.*rate *= factor;
          return optim::exposed_time(plan, params, other);
        };
        const optim::ExposedTime time = optim::exposed_time(plan, params, machine);
        const double rounding = 1e-12;
        double busiest = 0;
        for (const optim::Bucket& bucket : plan.buckets)
          busiest +=
              optim::strategies::busiest_flops(bucket, params, plan.world, *plan.newton_schulz);
        EXPECT_LE(time.update_s,
                  time.communication_s + busiest / machine.gemm_flops_per_s + rounding);
        EXPECT_LE(time.communication_exposed_s, time.communication_s + rounding);
        EXPECT_GE(time.communication_exposed_s, 0);
        EXPECT_GE(time.newton_schulz_exposed_s, 0);
        if (plan.world == 1) {
          EXPECT_EQ(time.communication_s, 0);
          EXPECT_EQ(time.communication_exposed_s, 0);
        }
        if (step_ms <= 0) {
          EXPECT_GE(time.update_s, time.communication_s - rounding);
          EXPECT_GE(time.update_s, time.newton_schulz_s - rounding);
        }
        // If any rate increases, or more can overlap, the update does not take more time.
        EXPECT_LE(with(&optim::MachineRates::link_bytes_per_s, 2).update_s,
                  time.update_s + rounding);
        EXPECT_LE(with(&optim::MachineRates::link_bytes_per_s, 2).communication_exposed_s,
                  time.communication_exposed_s + rounding);
        EXPECT_LE(with(&optim::MachineRates::gemm_flops_per_s, 2).update_s,
                  time.update_s + rounding);
        EXPECT_LE(with(&optim::MachineRates::link_latency_s, 0.5).update_s,
                  time.update_s + rounding);
        EXPECT_LE(with(&optim::MachineRates::step_s, 2).update_s, time.update_s + rounding);
        // A machine that is twice as slow in everything takes twice as long.
        optim::MachineRates slow = machine;
        slow.link_bytes_per_s /= 2;
        slow.gemm_flops_per_s /= 2;
        slow.link_latency_s *= 2;
        slow.step_s *= 2;
        const std::vector<double> twice = all_times(optim::exposed_time(plan, params, slow));
        const std::vector<double> once = all_times(time);
        for (std::size_t i = 0; i < once.size(); ++i)
          EXPECT_NEAR(twice[i], 2 * once[i], rounding) << i;
      }
}
INSTANTIATE_TEST_SUITE_P(Worlds, ExposedTimeOfPlans, ::testing::Values(1, 2, 3, 8));

// Four ranks in two boxes. A ring passes each box once, so a box sends as much as a rank. Of
// the bytes that a rank sends to the three others, two thirds leave the box, and this holds for
// both of its ranks.
TEST(ExposedTime, BetweenBoxesIsTheTimeOfTheirLinks) {
  const std::vector<ParamSpec> params = matrices(4);
  const auto ms = [&](const char* strategy, double box_bytes_per_s) {
    const optim::ShardingPlan plan = optim::make_sharding_plan(params, 4, strategy);
    optim::MachineRates machine = rates();
    const optim::ExposedTime one = optim::exposed_time(plan, params, machine);
    machine.ranks_per_box = 2;
    machine.box_bytes_per_s = box_bytes_per_s;
    const optim::ExposedTime two = optim::exposed_time(plan, params, machine);
    EXPECT_EQ(one.box_bytes, 0);
    return std::array{1e3 * one.communication_s, 1e3 * two.communication_s, two.box_bytes};
  };
  const double link = rates().link_bytes_per_s;
  // block_cyclic: a reduction and a gather of three quarters of four matrices, 12 ms each.
  const auto [one, fast, sent] = ms("block_cyclic", 2 * link);
  EXPECT_NEAR(one, 24, 1e-9);
  EXPECT_NEAR(fast, 24, 1e-9);
  EXPECT_NEAR(sent, 2 * 3 * 64 * 64 * 4, 1e-6);
  EXPECT_NEAR(ms("block_cyclic", link / 3)[1], 72, 1e-9);
  // all_to_all adds the exchange and its return, in which a box sends 4/3 of the bytes of a rank.
  const auto exchanged = ms("all_to_all", link);
  const double between_ranks = exchanged[0] - 24;
  EXPECT_GT(between_ranks, 0);
  EXPECT_NEAR(exchanged[1], 24 + between_ranks * 4 / 3, 1e-9);
}

// For the update alone, it makes no difference whether the gather is first or last.
TEST(ExposedTime, WithoutAModelThereIsNothingToPipeline) {
  const std::vector<ParamSpec> params = toy_params();
  for (const optim::ShardingPlan& plan : all_plans(params, 3))
    EXPECT_NEAR(optim::exposed_time(plan, params, rates()).update_s,
                optim::exposed_time(pipelined(plan), params, rates()).update_s, 1e-12)
        << plan.strategy;
}

// The table in docs/spec/strategies.md, "Predicted update of d24": on 8 devices, embeddings in bf16
// and the rest in fp32, 370 GB/s and 600 TFLOP/s.
class SpecTable : public ::testing::Test {
 protected:
  static constexpr int kWorld = 8;
  struct Line {
    double gigabytes = 0, communication_ms = 0, newton_schulz_ms = 0;
  };
  // `narrow_exchange`: the inputs and updates of Newton-Schulz are sent in bf16, which plans cannot
  // express with fp32 gradients.
  [[nodiscard]] Line line_of(const std::string& strategy, bool narrow_exchange = false) const {
    optim::ShardingPlan plan = optim::make_sharding_plan(params_, kWorld, strategy);
    double saved = 0;
    for (optim::Bucket& bucket : plan.buckets) {
      const ParamRole role = params_[bucket.units.front().param].role;
      if (role == ParamRole::kEmbedding || role == ParamRole::kValueEmbedding)
        bucket.gradient_wire = bucket.weight_wire = DType::kBF16;
      const optim::BucketBytes bytes = optim::bucket_bytes(bucket, 0, kWorld);
      if (narrow_exchange)
        saved += bucket.returns == optim::Return::kScatter
                     ? static_cast<double>(bytes.owners)
                     : static_cast<double>(bytes.exchange) / 2;
    }
    const optim::MachineRates machine{.link_bytes_per_s = 370e9, .gemm_flops_per_s = 600e12};
    const optim::ExposedTime time = optim::exposed_time(plan, params_, machine);
    const double bytes = time.communication_s * machine.link_bytes_per_s - saved;
    return {bytes / 1e9, 1e3 * bytes / machine.link_bytes_per_s, 1e3 * time.newton_schulz_s};
  }
  static void expect(const Line& got, const Line& table) {
    EXPECT_NEAR(got.gigabytes, table.gigabytes, 0.011);
    EXPECT_NEAR(got.communication_ms, table.communication_ms, 0.06);
    EXPECT_NEAR(got.newton_schulz_ms, table.newton_schulz_ms, 0.06);
  }

  std::vector<ParamSpec> params_ = [] {
    model::GptConfig model;
    model.n_layer = 24;
    model.n_embd = 1536;
    model.n_head = model.n_kv_head = 12;
    model.vocab_size = 32768;
    model.value_embeddings = model.smear = model.backout = true;
    model.resid_lambdas = model.x0_lambdas = true;
    return model::gpt_parameters(model);
  }();
};

TEST_F(SpecTable, HoldsForStrategiesThatSendEveryMatrixAlike) {
  expect(line_of("ddp"), {7.40, 20.0, 43.5});
  expect(line_of("stacked"), {7.40, 20.0, 5.4});
  expect(line_of("balanced"), {7.40, 20.0, 5.4});
  expect(line_of("ns_replicated", /*narrow_exchange=*/true), {8.59, 23.2, 43.5});
  expect(line_of("parallel", /*narrow_exchange=*/true), {7.70, 20.8, 5.4});
}

// Three transfers of everything would be 11.10 GB, but AdamW's parameters are transferred twice.
TEST_F(SpecTable, HoldsForAnAllReduceOfMatricesOnly) {
  expect(line_of("allreduce_owner"), {9.78, 26.4, 5.4});
}

// All in bf16: 4.84 GB, 13.1 ms.
TEST_F(SpecTable, NarrowWiresHalveIt) {
  const optim::ShardingPlan plan = optim::make_sharding_plan(
      params_, kWorld, "balanced", {.gradient_wire = DType::kBF16, .weight_wire = DType::kBF16});
  const optim::ExposedTime time =
      optim::exposed_time(plan, params_, {.link_bytes_per_s = 370e9, .gemm_flops_per_s = 600e12});
  EXPECT_NEAR(1e3 * time.communication_s, 13.1, 0.06);
}

}  // namespace
}  // namespace muo::test
