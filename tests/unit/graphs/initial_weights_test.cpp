// Initial weights are a function of seed, name and element: on any number of threads, of ranks, in
// any pieces.
#include "graphs/initial_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "app/report/optimizer_times.h"
#include "base/threads.h"
#include "graphs/run_state.h"
#include "runtime/memory/memory_plan.h"
#include "support/toy_training.h"

namespace muo {
namespace {

using Bits = std::vector<std::uint32_t>;

Bits bits_of(const float* values, std::int64_t count) {
  Bits out(static_cast<std::size_t>(count));
  std::transform(values, values + count, out.begin(),
                 [](float x) { return std::bit_cast<std::uint32_t>(x); });
  return out;
}

// Drawn by one thread, as a whole.
Bits drawn_alone(const RunConfig& config, const ParamSpec& spec, std::int64_t begin,
                 std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  init_parameter(spec, config.options.seed, begin, count, values.data());
  return bits_of(values.data(), count);
}

TEST(OnThreads, EveryElementIsOneThreads) {
  for (const std::int64_t count : {0, 1, 16'383, 16'384, 32'768, 100'003})
    for (const int threads : {0, 1, 2, 3, 8}) {
      std::vector<int> times(static_cast<std::size_t>(count));
      std::mutex mutex;
      std::set<std::thread::id> used;
      on_threads(threads, count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          ++times[static_cast<std::size_t>(i)];
        const std::lock_guard lock(mutex);
        used.insert(std::this_thread::get_id());
      });
      EXPECT_EQ(std::ranges::count(times, 1), count) << count << ", " << threads;
      EXPECT_EQ(static_cast<std::int64_t>(used.size()),
                std::clamp<std::int64_t>(count / 16'384, 1, std::max(1, threads)));
    }
}

TEST(InitialWeights, AreTheSameOnAnyNumberOfThreads) {
  RunConfig config = test::toy_config({.nanochat_bf16 = true});
  config.model.vocab_size = 4000;  // tensors of 96,000 elements
  for (const ParamSpec& spec : gpt_parameters(config.model)) {
    const std::int64_t begin = spec.shape.numel() / 3;
    const std::int64_t count = spec.shape.numel() - begin;
    const Bits want = drawn_alone(config, spec, begin, count);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (const int threads : {1, 2, 3, 16}) {
      std::ranges::fill(values, -1.0F);
      draw_parameter(spec, config.options.seed, begin, count, values.data(), threads);
      EXPECT_EQ(bits_of(values.data(), count), want) << spec.name << ", " << threads;
    }
  }
}

// One tensor is longer than a piece.
TEST(InitialWeights, MastersOfEveryRankAreTheirElements) {
  for (const int world : {1, 2}) {
    RunConfig config = test::toy_config({.world = world});
    config.model.vocab_size = 40'000;
    config.model.n_embd = 64;
    config.group.world = world;
    config.step_only = true;
    const std::vector<ParamSpec> params = gpt_parameters(config.model);
    const ShardingPlan plan = make_sharding_plan(config, params);
    std::atomic<std::int64_t> compared = 0;
    DeviceGroup group(config.group);
    group.run([&](RankContext& rank) {
      PlannedArena arena(rank.device, plan_rank_memory(config, params, plan, rank.rank),
                         rank.common);
      RunState state(rank, config, params, plan, arena);
      state.initialize_weights(config.options.seed);
      for (const StateEntry& entry : state.update.state()) {
        const auto spec = std::ranges::find(params, entry.name, &ParamSpec::name);
        if (spec == params.end()) continue;
        const std::int64_t count = entry.values.numel();
        EXPECT_TRUE(bits_of(entry.values.as<float>(), count) ==
                    drawn_alone(config, *spec, entry.begin, count))
            << entry.name << " of rank " << rank.rank << " of " << world;
        compared += count;
      }
    });
    EXPECT_GE(compared, 2 * 40'000 * 64);
  }
}

TEST(RandomGradients, AreTheSameOnAnyNumberOfThreads) {
  const std::vector<float> want = random_gradients(42, 1, 100'000, 1);
  EXPECT_EQ(random_gradients(42, 1, 100'000, 5), want);
}

}  // namespace
}  // namespace muo
