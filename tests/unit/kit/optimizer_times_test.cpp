#include "kit/bench/optimizer_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/fingerprint.h"
#include "optim/sharded_step.h"
#include "optim/update_clock.h"
#include "support/kernel_stream.h"
#include "support/tensors.h"

namespace muo::kit {
namespace {

constexpr std::int64_t kSteps = 3;

trainer::RunConfig config_of(const std::string& strategy, std::int64_t devices,
                             const std::string& version = "head") {
  trainer::TrainOptions options;
  options.devices.backend = trainer::Backend::kHost;
  options.devices.count = devices;
  options.model.set(&model::GptConfig::n_layer, 3);
  options.model.set(&model::GptConfig::n_embd, 64);
  options.model.set(&model::GptConfig::n_head, 2);
  options.model.set(&model::GptConfig::seq_len, 16);
  options.batch.iterations = 10;
  options.sharding.strategy = strategy;
  options.optimizer.version = version;
  data::Corpus corpus;
  corpus.vocab_size = data::kByteVocab;
  return trainer::resolve(options, corpus);
}

// An arena that allocates memory for each tensor.
class SeparateArena final : public Arena {
 public:
  explicit SeparateArena(RankContext& rank) : rank_(rank) {}
  Tensor tensor(const TensorSpec& spec) override {
    Tensor out{.shape = spec.shape, .dtype = spec.dtype, .device = rank_.rank};
    buffers_.push_back(rank_.device.allocate(std::max<std::int64_t>(out.bytes(), 1), spec.name));
    out.data = buffers_.back()->data();
    rank_.compute.zero(out);
    return out;
  }

 private:
  RankContext& rank_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Fingerprints of the weights after training from zero with the same gradients, by eager steps
// without clocks.
std::vector<std::int64_t> trained(trainer::RunConfig config, std::int64_t steps) {
  config.options.sharding.replicas =
      optim::ReplicaAt::kEveryRank;  // SeparateArena has no common memory
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = trainer::make_sharding_plan(config, params);
  std::vector<std::int64_t> out(params.size());
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    SeparateArena arena(rank);
    optim::ShardedStep step(rank, plan, params, arena);
    rank.compute.copy(step.hyper(), host_struct(config.hyper));
    for (std::int64_t t = 0; t < steps; ++t) {
      optim::ShardedStep::OpenStep open = step.begin();
      optim::ShardedStep::MicroStep micro_step = open.micro_step(0);
      rank.compute.zero(step.totals());
      for (std::size_t i = 0; i < params.size(); ++i) {
        micro_step.weight_needed(i);
        draw_gradients(rank.compute, config.options.seed, rank.rank, step.gradient(i));
      }
      for (int ready = 0; ready <= 1 << 10; ++ready)
        for (std::size_t i = 0; i < params.size(); ++i)
          if (params[i].ready == ready) micro_step.gradient_ready(i);
      open.finish();
    }
    step.publish();
    const Tensor fingerprints = arena.tensor({.name = "fingerprints",
                                              .shape = {static_cast<std::int64_t>(params.size())},
                                              .dtype = DType::kI64});
    for (std::size_t i = 0; i < params.size(); ++i)
      fingerprint(rank.compute, {.out = fingerprints.elements(static_cast<std::int64_t>(i), 1),
                                 .x = step.weight(i)});
    rank.wait(rank.compute);
    if (rank.rank == 0)
      rank.compute.copy(host_tensor(out.data(), fingerprints.shape), fingerprints);
  });
  return out;
}

TEST(OptimizerTimes, MeasureTheUpdateOfTraining) {
  const std::vector<std::int64_t> want = trained(config_of("balanced", 3), kSteps + 1);
  for (const std::string_view strategy : optim::strategy_names())
    for (const optim::Gather gather : {optim::Gather::kPipelined, optim::Gather::kSimple}) {
      trainer::RunConfig config = config_of(std::string(strategy), 3);
      config.options.sharding.gather = gather;
      EXPECT_EQ(measure_optimizer(config, kSteps).weights, want)
          << strategy << ", " << name_of(gather);
    }
  EXPECT_NE(trained(config_of("balanced", 3), kSteps), want) << "every step counts";
}

TEST(OptimizerTimes, GradientsDifferBetweenRanks) {
  test::KernelStream stream;
  const auto gradients = [&](int rank) {
    const test::HostTensor out({64}, DType::kF32);
    draw_gradients(stream, 42, rank, out);
    stream.synchronize();
    return out.doubles();
  };
  EXPECT_EQ(gradients(1), gradients(1));
  EXPECT_NE(gradients(0), gradients(1));
}

TEST(OptimizerTimes, CoverEveryVersion) {
  for (const optim::OptimizerVersion& version : optim::optimizer_versions()) {
    const trainer::RunConfig config = config_of("parallel", 2, std::string(version.name));
    EXPECT_EQ(measure_optimizer(config, kSteps).weights, trained(config, kSteps + 1))
        << version.name;
  }
}

std::int64_t update_ns(const PhaseClock& clock) {
  return std::accumulate(clock.elapsed + 1, clock.elapsed + optim::kUpdatePhases.size(),
                         std::int64_t{0});
}

TEST(OptimizerTimes, PhasesAddUpToTheTime) {
  for (const bool graph : {true, false}) {
    trainer::RunConfig config = config_of("balanced", 1);
    config.options.capture.graph = graph;
    const OptimizerTimes times = measure_optimizer(config, kSteps);
    const double seconds = std::accumulate(times.seconds.begin(), times.seconds.end(), 0.0);
    EXPECT_NEAR(seconds, 1e-9 * static_cast<double>(update_ns(times.update.at(0))), 1e-9);
    EXPECT_GT(seconds, 0);
  }
}

// Checks the number of intervals of the clock, because durations do not prove that each was
// measured.
TEST(OptimizerTimes, EveryCollectiveAndIterationIsClocked) {
  for (const std::string_view strategy : optim::strategy_names())
    for (const optim::Gather gather : {optim::Gather::kPipelined, optim::Gather::kSimple}) {
      trainer::RunConfig config = config_of(std::string(strategy), 2);
      config.options.sharding.gather = gather;
      const optim::ShardingPlan plan =
          trainer::make_sharding_plan(config, model::gpt_parameters(config.model));
      std::int64_t calls = 1;  // the all-reduce of the totals
      for (const optim::Bucket& bucket : plan.buckets)
        calls += 1 + (bucket.exchange_tag != 0 ? 1 : 0) + (bucket.return_tag != 0 ? 1 : 0) +
                 (optim::publish_collectives(bucket) > 0 ? 1 : 0);
      // For buckets without publication, a simple step counts an empty interval, and a pipelined
      // step skips them.
      if (gather == optim::Gather::kSimple)
        for (const optim::Bucket& bucket : plan.buckets)
          calls += optim::publish_collectives(bucket) > 0 ? 0 : 1;
      const OptimizerTimes times = measure_optimizer(config, kSteps);
      for (const PhaseClock& clock : times.comm)
        EXPECT_EQ(clock.marks[static_cast<std::size_t>(optim::CommPhase::kBusy)], kSteps * calls)
            << strategy << ", " << name_of(gather);
      for (const PhaseClock& clock : times.update) {
        EXPECT_GT(clock.elapsed[static_cast<std::size_t>(optim::UpdatePhase::kElementwise)], 0);
        EXPECT_EQ(clock.marks[static_cast<std::size_t>(optim::UpdatePhase::kGemm)] % kSteps, 0);
        EXPECT_GE(clock.marks[static_cast<std::size_t>(optim::UpdatePhase::kGemm)], kSteps)
            << strategy;
        EXPECT_GT(clock.thread[static_cast<std::size_t>(optim::UpdatePhase::kGemm)], 0);
      }
    }
}

}  // namespace
}  // namespace muo::kit
