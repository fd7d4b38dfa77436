#include "trainer/run/run_memory.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>

#include "base/check.h"
#include "data/loader.h"
#include "graphs/run_state.h"
#include "runtime/tracing_rank.h"
#include "trainer/checkpoint/checkpoint_saver.h"
#include "trainer/run/backend.h"

namespace muo::trainer {
namespace {

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// False if the only save is after the last step, when training does not continue.
bool saves_between_steps(const RunConfig& config) {
  const SaveOptions& save = config.options.save;
  return save.every.value_or(-1) > 0 || save.minutes > 0 ||
         (config.options.evaluation.every.value_or(-1) > 0 && save.before_eval >= 0);
}

}  // namespace

PlannedRun plan_run(RunConfig config, MemoryPlan memory) {
  PlannedRun out{
      .config = std::move(config), .params = {}, .plan = {}, .memory = std::move(memory)};
  out.params = model::gpt_parameters(out.config.model);
  out.plan = make_sharding_plan(out.config, out.params);
  return out;
}

MemoryPlan plan_run_memory(const RunConfig& config) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  const optim::ShardingPlan plan = make_sharding_plan(config, params);
  return graphs::plan_rank_memory(config, params, plan, 0);
}

std::int64_t plan_staging_memory(const std::vector<ParamSpec>& params,
                                 const optim::ShardingPlan& plan) {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.world; ++rank) {
    TracingRank trace(rank, plan.world);
    TraceArena arena(rank);
    const optim::ShardedStep update(trace.context(), plan, params, arena);
    most = std::max(most, CheckpointSaver::Staging::bytes(update.state()));
  }
  return most;
}

std::int64_t process_base(int world, bool stages_saves) {
  constexpr double kMiB = 1 << 20;
  constexpr double kProgram = 18;
  constexpr double kDevice = 12.5;
  constexpr double kChunks = 3;  // buffers through which checkpoints are written
  return static_cast<std::int64_t>((kProgram + (kDevice + (stages_saves ? 0 : kChunks)) * world) *
                                   kMiB);
}

AvailableMemory process_memory(const GroupOptions& group, int ranks) {
  constexpr int kOfARank = 3;  // the rank, its loader, its saver
  constexpr int kOthers = 3;   // logger, watchdog, a temporary thread
  return available_memory(group.processes == nullptr ? 1 : group.processes->processes_here(),
                          kOfARank * ranks + kOthers);
}

std::int64_t tensor_bytes(std::int64_t bytes, int ranks, bool stages_saves) {
  return std::max<std::int64_t>(0, bytes - process_base(ranks, stages_saves) - kBaseSpread);
}

void trim_heap([[maybe_unused]] bool give_back) {
#ifdef __GLIBC__
  constexpr int kLarge = 1 << 20;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's takes a lock
  if (give_back) mallopt(M_MMAP_THRESHOLD, kLarge);
  malloc_trim(0);
#endif
}

bool choose_background_saves(const RunConfig& config, std::int64_t planned, std::int64_t staging,
                             std::int64_t available, std::vector<std::string>& notes) {
  if (config.options.save.mode == SaveMode::kWait || !saves_between_steps(config)) return false;
  const bool on_host = config.group.plugin == nullptr;
  const std::int64_t need = (staging + (on_host ? planned : 0)) * config.ranks_here();
  if (need <= available) return true;
  const std::string numbers = fmt::format(
      "background saves need {:.2f} GiB of host memory, {:.2f} GiB of them for copies, "
      "but {:.2f} GiB are available",
      gib(need), gib(staging * config.ranks_here()), gib(available));
  if (config.options.save.mode == SaveMode::kBackground)
    throw input_error("--save-mode background: {}: give auto or wait", numbers);
  notes.push_back(numbers + ": training will wait for each checkpoint");
  return false;
}

void plan_background_saves(PlannedRun& run, std::int64_t available,
                           std::vector<std::string>& notes) {
  const std::int64_t staging = plan_staging_memory(run.params, run.plan);
  const std::int64_t planned = run.memory.rank_bytes(run.config.world());
  if (choose_background_saves(run.config, planned, staging, available, notes))
    run.staging_bytes = staging;
}

void require_memory(const RunConfig& config, const MemoryPlan& plan, std::int64_t available) {
  const std::int64_t bytes = plan.rank_bytes(config.world());
  if (bytes <= available) return;
  throw input_error(
      "not enough memory: {} device{} need{} {:.2f} GiB ({:.2f} GiB each), but {:.2f} GiB are "
      "available{}: give a smaller --device-batch-size (now {}), --max-seq-len ({}) or --depth "
      "({} layers of width {}), fewer --devices, or with several micro-steps --shard gradients",
      config.world(), config.world() == 1 ? "" : "s", config.world() == 1 ? "s" : "",
      gib(bytes) * config.world(), gib(bytes), gib(available) * config.world(),
      config.group.plugin == nullptr
          ? ""
          : fmt::format(" (each GPU's free memory less {:.2f} GiB for the kernels and buffers of "
                        "CUDA's libraries)",
                        gib(kLibraryMemory)),
      config.step.batch, config.model.seq_len, config.model.n_layer, config.model.n_embd);
}

void require_batches(const RunConfig& config, std::int64_t available) {
  const std::int64_t slot = data::Loader::slot_bytes({.world = config.world(),
                                                      .batch = config.step.batch,
                                                      .seq_len = config.model.seq_len,
                                                      .accumulation = config.step.accumulation});
  if (slot <= available / kLoaderSlots / config.ranks_here()) return;
  throw input_error(
      "--total-batch-size {}: batches of {} steps, which are read ahead, take {:.2f} GiB of host "
      "memory, but {:.2f} GiB are available: give fewer tokens",
      config.tokens_per_step(), kLoaderSlots,
      static_cast<double>(kLoaderSlots) * config.ranks_here() * gib(slot), gib(available));
}

}  // namespace muo::trainer
