#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/cli.h"
#include "graphs/run_state.h"
#include "kit/plan/largest_model.h"
#include "kit/plan/plan_compare.h"
#include "kit/plan/plan_report.h"
#include "kit/plan/roofline.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/run/backend.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_memory.h"
#include "trainer/train/resume.h"

namespace muo::cli {

namespace {

trainer::ExpectedTime predicted_time(const trainer::RunConfig& config, const kit::GpuRates& rates) {
  const double step = kit::predict_step(config, rates).step;
  const double seconds = step * static_cast<double>(config.iterations());
  if (const auto& budget = config.options.batch.time_budget; budget && budget->seconds < seconds)
    return {.seconds = budget->seconds,
            .text = fmt::format("{}, about {:.0f} steps of {:.3g} ms by --roofline {}",
                                to_text(*budget), budget->seconds / step, 1e3 * step, rates.gpu)};
  return {.seconds = seconds,
          .text = fmt::format("about {}, {:.3g} ms a step, by --roofline {}",
                              duration_text(std::max(seconds, 1.0)), 1e3 * step, rates.gpu)};
}

}  // namespace

int run_command(const trainer::PlanOptions& options) {
  const bool json = options.format == trainer::ReportFormat::kJson;
  const auto print = [&](const std::string& text) {
    if (json)
      fmt::print("{}", text);
    else
      say(stdout, text);
  };
  if (options.kind == trainer::PlanKind::kLargest) {
    const kit::LargestModels found = waiting("searching for the deepest models",
                                             [&] { return kit::find_largest_models(options); });
    print(json ? kit::largest_json(found) : kit::largest_table(found));
    return 0;
  }
  trainer::TrainOptions train = options.train;
  std::optional<kit::GpuRates> gpu;
  std::optional<trainer::DescribedAttention> attention;
  if (options.kind == trainer::PlanKind::kRoofline) {
    if (train.devices.backend == trainer::Backend::kHost)
      throw InputError("--roofline: --backend host has no GPU: give auto or cuda");
    if (train.devices.ranks_per_device > 1)
      throw trainer::input_error(
          "--roofline: predicts one rank per GPU: give --ranks-per-device 1, not {}",
          train.devices.ranks_per_device);
    gpu = kit::gpu_rates(options.roofline);
    if (!options.measured.empty()) kit::apply_measured(*gpu, options.measured);
    train.devices.described = gpu->gpu;
    attention.emplace(trainer::described_gpu(gpu->gpu));
  }
  if (!options.gpu.empty() || options.memory) {
    train.devices.described = options.gpu.empty() ? "h100" : options.gpu;
    train.devices.described_memory = options.memory ? options.memory->bytes : 0;
    attention.emplace(trainer::described_gpu(train.devices.described));
  }
  // Comparisons and predictions are about links, so by default every device has its own replica:
  // the host's default, a common replica, is never sent.
  if (!train.sharding.replicas && train.sharding.shard != optim::Shard::kWeights &&
      (options.kind == trainer::PlanKind::kCompare || options.prediction.link_gbps))
    train.sharding.replicas = optim::ReplicaAt::kEveryRank;
  const data::Corpus corpus = train.data.paths.empty() ? data::corpus_without_tokens(train.data)
                                                       : data::open_corpus(train.data);
  trainer::RunConfig config = trainer::resolve(train, corpus);
  if (!train.run.resume.empty())
    if (const auto resumed = trainer::find_resumed(
            trainer::find_run_directory(train), train.run.resume, config.notes, {.verify = false}))
      trainer::continue_from(config, trainer::trained_by(*resumed));
  if (!train.devices.described.empty() && !gpu)
    config.notes.insert(config.notes.begin(),
                        fmt::format("gpu: {}{} (a GPU profile)",
                                    trainer::described_gpu(train.devices.described).device,
                                    options.memory ? ", with " + to_text(*options.memory) : ""));
  const data::DataOptions& data = train.data;
  if (data.paths.empty() && data.vocab_size == 0 && data.tokenizer == "byte")
    config.notes.insert(config.notes.begin(),
                        "vocabulary: bytes, because neither --data nor --tokenizer is given; "
                        "--vocab-size 32768 is nanochat's");
  if (train.run.sizes == trainer::CpuSizes::kQuick)
    config.notes.insert(config.notes.begin(), trainer::kQuickSizes);
  trainer::warn_of_unused_gpus(train.devices.backend, config.group, stderr);
  const trainer::MemoryBudget budget = trainer::memory_budget(config);
  const MemoryPlan memory =
      waiting("planning memory", [&] { return trainer::fit_memory(config, budget.to_plan); });
  if (gpu) {
    trainer::require_fit(config, memory, budget, train, corpus);
    const kit::Roofline roofline = kit::predict_step(config, *gpu);
    if (!std::isfinite(roofline.step) || roofline.step <= 0)
      throw trainer::input_error("--roofline {}: its rates give a step of {} s: correct the file",
                                 options.roofline, roofline.step);
    print(json ? kit::roofline_json(config, roofline, *gpu)
               : kit::roofline_text(config, roofline, *gpu));
    return 0;
  }
  const std::optional<optim::MachineRates> rates = kit::machine_rates(config, options.prediction);
  if (options.kind == trainer::PlanKind::kCompare) {
    const kit::Comparison comparison = kit::compare_strategies(config, rates);
    print(json ? kit::compare_json(comparison) : kit::compare_table(comparison));
    return 0;
  }
  kit::PlanReport report{.run = trainer::plan_run(config, memory), .rates = rates};
  trainer::PlannedRun& run = report.run;
  trainer::plan_background_saves(run, budget.process, run.config.notes);
  if (train.devices.described.empty())
    report.time = trainer::expected_time(run.config, trainer::peak_of(run.config));
  else if (!options.gpu.empty())
    report.time = predicted_time(run.config, kit::gpu_rates(options.gpu));
  report.fixed = graphs::plan_fixed_memory(run.config, run.params, run.plan, 0);
  print(json ? kit::plan_json(report) : kit::plan_table(report));
  trainer::require_fit(config, memory, budget, train, corpus);
  return 0;
}

}  // namespace muo::cli
