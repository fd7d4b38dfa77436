// Whole training steps, optimizer included, against the sgemm rate of the same run:
//   build/release/step_bench [--devices 2] [--steps 8] [--json FILE]
// Configuration: plain GPT, 6 layers, width 384, 6 heads, vocabulary 50257, T = 256, B = 4 per
// device, accumulation 8. Model FLOPs as nanochat counts them, without attention's causal half
// taken off; the exact causal count stands beside.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "app/run_state.h"
#include "base/philox.h"
#include "bench/peak.h"
#include "kernels/blas.h"

namespace muo {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RunConfig bench_config(int devices) {
  RunConfig config;
  config.model = {.vocab_size = 50257,
                  .n_layer = 6,
                  .n_head = 6,
                  .n_kv_head = 6,
                  .n_embd = 384,
                  .seq_len = 256,
                  .window_pattern = "L"};
  config.options.strategy = "balanced";
  config.world = devices;
  config.batch = 4;
  config.accumulation = 8;
  config.total_batch_tokens = config.rows_per_step() * config.model.seq_len;
  config.iterations = 1000;
  config.optimizer.iterations = 1000;
  return config;
}

// Medians over steps of the slowest rank's time.
double median_step_seconds(const RunConfig& config, int steps) {
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  const ShardingPlan plan = make_sharding_plan(params, config.world, config.options.strategy);
  std::vector<double> times;
  DeviceGroup group({.world = config.world});
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, plan_rank_memory(config, params, plan, rank.rank));
    RunState state(rank, config, params, plan, arena);
    state.capture();
    state.initialize({});
    state.initialize_weights();
    const Shape shape{config.accumulation, config.batch, config.model.seq_len};
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.numel()) + 1);
    const CounterRandom random(1, "bench");
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(
          random.bits(i + tokens.size() * static_cast<std::size_t>(rank.rank)) % 50257);
    const auto copied = rank.device.make_event();
    for (int step = -1; step < steps; ++step) {  // one to warm up
      rank.barrier.arrive();
      const double start = seconds_now();
      state.step.run(host_tensor(tokens.data(), shape), host_tensor(tokens.data() + 1, shape),
                     *copied);
      rank.compute.synchronize();
      rank.barrier.arrive();
      if (rank.rank == 0 && step >= 0) times.push_back(seconds_now() - start);
    }
  });
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(int devices, int steps, const std::string& json) {
  require_safe_blas();
  const RunConfig config = bench_config(devices);
  const double before = bench::sgemm_peak_gflops(devices);
  const double step = median_step_seconds(config, steps);
  const double peak = std::max(before, bench::sgemm_peak_gflops(devices));
  const auto tokens = static_cast<double>(config.total_batch_tokens);
  const double flops = flops_per_token(config.model) * tokens;
  const double causal = causal_flops_per_token(config.model) * tokens;
  const double rate = flops / step / 1e9;
  const double causal_rate = causal / step / 1e9;
  fmt::print(
      "{} devices, {} tokens per step: {:.3f} s, {:.0f} tokens/s\n"
      "sgemm peak of this run {:.1f} GFLOP/s\n"
      "model {:.1f} GFLOP/s, {:.1f}% of the peak (causal pairs only: {:.1f}, {:.1f}%)\n",
      devices, tokens, step, tokens / step, peak, rate, 100 * rate / peak, causal_rate,
      100 * causal_rate / peak);
  if (!json.empty()) {
    std::ofstream(json) << fmt::format(
        "{{\"devices\": {}, \"tokens_per_step\": {}, \"step_s\": {:.4f}, \"tokens_per_s\": {:.1f}, "
        "\"sgemm_peak_gflops\": {:.1f}, \"model_gflops\": {:.1f}, \"share\": {:.4f}, "
        "\"causal_share\": {:.4f}}}\n",
        devices, tokens, step, tokens / step, peak, rate, rate / peak, causal_rate / peak);
  }
  return 0;
}

}  // namespace
}  // namespace muo

int main(int argc, char** argv) {
  int devices = 2;
  int steps = 8;
  std::string json;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--devices") devices = std::atoi(argv[i + 1]);
    if (option == "--steps") steps = std::atoi(argv[i + 1]);
    if (option == "--json") json = argv[i + 1];
  }
  return muo::run(devices, steps, json);
}
