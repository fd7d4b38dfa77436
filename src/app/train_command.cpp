#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include "app/backend.h"
#include "app/commands.h"
#include "app/gemm_rate.h"
#include "app/gpu_peaks.h"
#include "app/logger.h"
#include "app/model_json.h"
#include "app/run_directory.h"
#include "app/run_memory.h"
#include "app/scaling.h"
#include "app/terminal.h"
#include "app/trainer.h"
#include "kernels/blas.h"
#include "model/activations.h"

namespace muo {
namespace {

// The handler runs on any thread while the ranks read: an atomic, and lock-free as handlers need.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// SIGINT and SIGTERM finish the step, save and end the run; a second one ends it at once.
void request_stop(int signal) {
  stop_signal = signal;
  std::signal(signal, SIG_DFL);
}

class SignalScope {
 public:
  SignalScope() {
    stop_signal = 0;
    std::signal(SIGINT, request_stop);
    std::signal(SIGTERM, request_stop);
  }
  ~SignalScope() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
};

// The checkpoint to go on from, checked against the run; empty: from the start.
std::optional<Checkpoint> open_resume(const RunDirectory& directory, const RunConfig& config,
                                      const Corpus& corpus, std::vector<std::string>& notes) {
  if (directory.resume.empty()) return std::nullopt;
  std::optional<Checkpoint> checkpoint;
  if (config.options.resume == "auto")
    checkpoint = newest_checkpoint(directory.root, notes);
  else
    checkpoint.emplace(directory.resume);
  if (!checkpoint) return std::nullopt;
  const std::string name = checkpoint->path().string();
  if (!checkpoint->has_optimizer_state())
    throw InputError(
        fmt::format("--resume: {} holds weights without optimizer state, as imported ones do: "
                    "training cannot go on from it; eval, sample and checkpoint export can use it",
                    name));
  if (const std::string difference = model_difference(checkpoint_model(*checkpoint), config.model);
      !difference.empty())
    throw InputError(
        fmt::format("--resume: {} holds another model: {}: give the options it was "
                    "trained with, or start a new run",
                    name, difference));
  if (checkpoint->info().step >= config.iterations)
    throw InputError(
        fmt::format("--resume: {} is at step {}, and --num-iterations is {}: nothing is "
                    "left to train; give more iterations",
                    name, checkpoint->info().step, config.iterations));
  if (checkpoint->info().data != data_identity(corpus))
    notes.push_back(
        fmt::format("the data is not that of {}: the run goes on with other text", name));
  notes.push_back(fmt::format("resuming from {} at step {}", name, checkpoint->info().step));
  return checkpoint;
}

void require_writable_graph_file(const TrainOptions& options) {
  if (options.graph_dot.empty()) return;
  if (!options.graph) throw InputError("--graph-dot: with --graph off there is no graph to write");
  if (!std::ofstream(options.graph_dot, std::ios::app))
    throw InputError(fmt::format("--graph-dot: cannot write to {}: {}", options.graph_dot,
                                 std::system_category().message(errno)));
}

// What the utilisation is a share of.
struct Peak {
  double flops = 0;  // per second, all devices together; 0: unknown
  std::string text;
};

// Of GPUs what their maker states; what a host reaches no table has, so it is measured.
Peak peak_of(const RunConfig& config) {
  const GroupOptions& group = config.group;
  if (group.plugin == nullptr) {
    const double flops = measure_gemm_rate(group, config.model.dtype);
    return {flops, fmt::format("{} in {} matrix products, all devices together, measured now",
                               flops_text(flops), name_of(config.model.dtype))};
  }
  Peak peak;
  for (int i = 0; i < group.world / group.ranks_per_device; ++i) {
    const std::string device = group.plugin->describe(i);
    const std::string name = device.substr(0, device.find(','));
    const std::optional<double> flops = gpu_peak_flops(name);
    if (!flops) return {0, fmt::format("that of {} is not known", name)};
    peak.flops += *flops;
  }
  peak.text = fmt::format("{} in bf16 by their maker, all GPUs together", flops_text(peak.flops));
  return peak;
}

std::string peak_note(const RunConfig& config, const Peak& peak, std::int64_t first_step) {
  if (peak.flops <= 0) return fmt::format("peak: {}: mfu is null", peak.text);
  const double flops_left = config.flops_per_token *
                            static_cast<double>(config.iterations - first_step) *
                            static_cast<double>(config.total_batch_tokens);
  return fmt::format("peak: {}; mfu is a share of it, and {:.3g} FLOPs take {} at it", peak.text,
                     flops_left, duration_text(flops_left / peak.flops));
}

// How a device computes attention, for each window once. None on the host, where nothing is chosen.
std::vector<std::string> attention_notes(const RunConfig& config) {
  std::map<std::int64_t, std::string> by_window;
  if (config.group.plugin != nullptr)
    for (std::int64_t layer = 0; layer < config.model.n_layer; ++layer) {
      const AttentionSize size =
          attention_size(config.model, config.batch, config.model.seq_len, layer);
      by_window.try_emplace(size.window, describe_attention(size));
    }
  std::vector<std::string> notes;
  for (const auto& [window, how] : by_window)
    notes.push_back(fmt::format("attention, window {}: {}", window, how));
  return notes;
}

}  // namespace

int run_train(const TrainOptions& options) {
  require_safe_blas();
  require_writable_graph_file(options);
  const Corpus corpus = open_corpus(data_options(options));
  RunConfig config = resolve(options, corpus);
  if (const auto seconds = config.options.stuck_after)
    config.group.watch.stuck_after =
        std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  const ShardingPlan plan = make_sharding_plan(config, params);
  const MemoryPlan memory = plan_run_memory(config);
  require_memory(config, memory, available_memory_per_rank(config.group));
  const RunDirectory directory = find_run_directory(config.options);
  config.options.out = directory.root.string();
  std::vector<std::string> notes = config.notes;
  const std::optional<Checkpoint> resume = open_resume(directory, config, corpus, notes);
  create_run_directory(directory, config.options);

  const Peak peak = peak_of(config);
  const std::int64_t first_step = resume ? resume->info().step : 0;
  Logger logger({.metrics = directory.metrics(),
                 .first_step = first_step,
                 .iterations = config.iterations,
                 .tokens_per_step = config.total_batch_tokens,
                 .bytes_per_token = config.bytes_per_token,
                 .flops_per_token = config.flops_per_token,
                 .peak_flops = peak.flops,
                 .log_every = config.options.log_every});
  logger.note(corpus.description);
  for (const std::string& note : notes)
    logger.note(note);
  for (const std::string& note : scaling_notes(config))
    logger.note(note);
  logger.note(fmt::format("model: {}, {} parameters; {} devices, {}; {:.0f} MiB per device",
                          config.options.model, config.parameters, config.world,
                          config.options.strategy, static_cast<double>(memory.bytes) / (1 << 20)));
  logger.note(peak_note(config, peak, first_step));
  for (const std::string& note : attention_notes(config))
    logger.note(note);

  CheckpointSaver saver(directory.root, config.world);
  const SignalScope signals;
  TrainingRun run{.config = config,
                  .params = params,
                  .plan = plan,
                  .corpus = corpus,
                  .saver = saver,
                  .resume = resume ? &*resume : nullptr,
                  .logger = logger,
                  .signal = stop_signal};
  config.group.watch.before_exit = [&logger] { logger.flush(); };
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) { train_rank(rank, run); });
  logger.summary();
  logger.note(fmt::format("run directory: {}", directory.root.string()));
  logger.close();
  return run.stop == 0 ? 0 : 128 + run.stop;
}

}  // namespace muo
