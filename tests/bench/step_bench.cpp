// Whole training steps, optimizer included, against the sgemm rate of the same run:
//   build/release/step_bench [--devices 2] [--steps 8] [--phases on] [--json FILE]
//     [--gather pipelined|simple]
//     [--backend host|cuda|simt] [--comm peer|nccl] [--ranks-per-device 1]
// Configuration: plain GPT, 6 layers, width 384, 6 heads, vocabulary 50257, T = 256, B = 4 per
// device, accumulation 8. Model FLOPs as nanochat counts them, without attention's causal half
// taken off; the exact causal count stands beside.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "app/capture_graphs.h"
#include "app/run_state.h"
#include "base/philox.h"
#include "bench/peak.h"
#include "kernels/blas.h"
#include "runtime/plugin.h"

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

struct Options {
  int devices = 2;
  int steps = 8;
  std::string backend = "host";  // or the plug-in muograph_BACKEND
  std::string comm = "peer";     // of a plug-in: peer or nccl
  int ranks_per_device = 1;
  bool phases = false;
  std::string gather = "pipelined";
  std::string json;
};

GroupOptions group_of(const Options& options) {
  GroupOptions group{.world = options.devices};
  if (options.backend == "host") return group;
  const LoadedPlugin loaded =
      options.backend == "cuda" ? load_cuda() : load_plugin("muograph_" + options.backend);
  if (loaded.plugin == nullptr) throw InputError(loaded.missing);
  group.plugin = loaded.plugin;
  group.ranks_per_device = options.ranks_per_device;
  group.communicator = options.comm == "nccl" ? CommunicatorKind::kNccl : CommunicatorKind::kPeer;
  return group;
}

struct Times {
  double step = 0;     // seconds, median over steps, until the slowest rank is done
  double enqueue = 0;  // of rank 0's host: until run() returns
  std::vector<PhaseClock> clocks = {};  // by rank, of all steps; if timed
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Steps that follow each other, as when training: no host waits between them.
void run_timed(RankContext& rank, RunState& state, const std::function<void()>& step, int steps,
               PhaseClock& result) {
  rank.compute.zero(state.step.clock());
  rank.compute.synchronize();
  rank.barrier.arrive();
  for (int i = 0; i < steps; ++i)
    step();
  rank.compute.synchronize();
  rank.compute.copy(host_struct(result), state.step.clock());
  rank.compute.synchronize();
}

Times measure(const RunConfig& config, int steps) {
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  const ShardingPlan plan = make_sharding_plan(config, params);
  std::vector<double> times, enqueue;
  Times result;
  result.clocks.resize(static_cast<std::size_t>(config.world));
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    PlannedArena arena(rank.device, plan_rank_memory(config, params, plan, rank.rank));
    RunState state(rank, config, params, plan, arena);
    capture_graphs(rank, arena, state);
    const Shape shape{config.accumulation, config.batch, config.model.seq_len};
    const std::int64_t bytes = (shape.numel() + 1) * size_of(DType::kI32);
    const auto pinned = rank.device.allocate_pinned(bytes, "tokens");
    auto* tokens = reinterpret_cast<std::int32_t*>(pinned->data());
    rank.device.seal();
    rank.barrier.arrive();
    state.initialize({});
    state.initialize_weights();
    const CounterRandom random(1, "bench");
    for (std::int64_t i = 0; i <= shape.numel(); ++i)
      tokens[i] = static_cast<std::int32_t>(
          random.bits(static_cast<std::uint64_t>(i + (shape.numel() + 1) * rank.rank)) % 50257);
    const auto copied = rank.device.make_event();
    const auto step = [&] {
      state.step.run(host_tensor(tokens, shape), host_tensor(tokens + 1, shape), *copied);
    };
    for (int i = -1; i < steps; ++i) {  // one to warm up
      rank.barrier.arrive();
      const double start = seconds_now();
      step();
      const double enqueued = seconds_now();
      rank.compute.synchronize();
      rank.barrier.arrive();
      if (rank.rank != 0 || i < 0) continue;
      times.push_back(seconds_now() - start);
      enqueue.push_back(enqueued - start);
    }
    if (config.timed_steps)
      run_timed(rank, state, step, steps, result.clocks[static_cast<std::size_t>(rank.rank)]);
    rank.communicator.check();
  });
  result.step = median(times);
  result.enqueue = median(enqueue);
  return result;
}

// Mean milliseconds per step, a column a rank.
void print_phases(const Times& times, int steps) {
  fmt::print("{:>10}", "ms/step");
  for (std::size_t rank = 0; rank < times.clocks.size(); ++rank)
    fmt::print("{:>12}", fmt::format("rank {}", rank));
  for (std::size_t phase = 0; phase < kStepPhases.size(); ++phase) {
    fmt::print("\n{:>10}", kStepPhases[phase]);
    for (const PhaseClock& clock : times.clocks)
      fmt::print("{:>12.3f}", static_cast<double>(clock.elapsed[phase]) / 1e6 / steps);
  }
  fmt::print("\n");
}

int run(const Options& options) {
  const int devices = options.devices;
  require_safe_blas();
  RunConfig config = bench_config(devices);
  config.group = group_of(options);
  config.timed_steps = options.phases;
  config.options.gather = options.gather;
  const double before = bench::sgemm_peak_gflops(devices);
  const Times times = measure(config, options.steps);
  const double step = times.step;
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
  if (options.backend != "host")  // whose step is over when run() returns
    fmt::print("rank 0's host enqueues a step in {:.1f} us\n", times.enqueue * 1e6);
  if (options.phases) print_phases(times, options.steps);
  if (!options.json.empty()) {
    std::ofstream(options.json) << fmt::format(
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
  muo::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const std::string value = argv[i + 1];
    if (option == "--devices") options.devices = std::stoi(value);
    if (option == "--steps") options.steps = std::stoi(value);
    if (option == "--backend") options.backend = value;
    if (option == "--comm") options.comm = value;
    if (option == "--ranks-per-device") options.ranks_per_device = std::stoi(value);
    if (option == "--phases") options.phases = value == "on";
    if (option == "--gather") options.gather = value;
    if (option == "--json") options.json = value;
  }
  try {
    return muo::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "step_bench: {}\n", e.what());
    return 3;
  }
}
