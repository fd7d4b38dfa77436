#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/run_directory.h"
#include "app/cli.h"
#include "app/plan/largest_model.h"
#include "app/plan/plan_compare.h"
#include "app/plan/plan_report.h"
#include "app/plan/roofline.h"
#include "app/run/backend.h"
#include "app/run/described_gpu.h"
#include "app/run/device_rates.h"
#include "app/run/memory_advice.h"
#include "app/run/memory_fit.h"
#include "app/run/run_memory.h"
#include "app/train/resume.h"
#include "base/terminal.h"
#include "graphs/run_state.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {

namespace {

ExpectedTime predicted_time(const RunConfig& config, const GpuRates& rates) {
  const double step = predict_step(config, rates).step;
  const double seconds = step * static_cast<double>(config.iterations());
  return {.seconds = seconds,
          .text = fmt::format("about {}, {:.3g} ms a step, by --roofline {}",
                              duration_text(std::max(seconds, 1.0)), 1e3 * step, rates.gpu)};
}

}  // namespace

int run_command(const PlanOptions& options) {
  const bool json = options.format == ReportFormat::kJson;
  const auto print = [&](const std::string& text) {
    if (json)
      fmt::print("{}", text);
    else
      say(stdout, text);
  };
  if (options.kind == PlanKind::kLargest) {
    const LargestModels found =
        waiting("looking for the deepest models", [&] { return find_largest_models(options); });
    print(json ? largest_json(found) : largest_table(found));
    return 0;
  }
  TrainOptions train = options.train;
  std::optional<GpuRates> gpu;
  std::optional<DescribedAttention> attention;
  if (options.kind == PlanKind::kRoofline) {
    if (train.devices.backend == Backend::kHost)
      throw InputError("--roofline: --backend host has no GPU: give auto or cuda");
    if (train.devices.ranks_per_device > 1)
      throw input_error(
          "--roofline: predicts a rank on each GPU: give --ranks-per-device 1, not {}",
          train.devices.ranks_per_device);
    gpu = gpu_rates(options.roofline);
    if (!options.measured.empty()) take_measured(*gpu, options.measured);
    train.devices.described = gpu->gpu;
    attention.emplace(described_gpu(gpu->gpu));
  }
  if (!options.gpu.empty() || options.memory) {
    train.devices.described = options.gpu.empty() ? "h100" : options.gpu;
    train.devices.described_memory = options.memory ? options.memory->bytes : 0;
    attention.emplace(described_gpu(train.devices.described));
  }
  // Comparisons and predictions are about links: every device then has a replica of its own, as the
  // common one, which the host has by default, is never sent.
  if (!train.sharding.replicas && train.sharding.shard != optim::Shard::kWeights &&
      (options.kind == PlanKind::kCompare || options.prediction.link_gbps))
    train.sharding.replicas = optim::ReplicaAt::kEveryRank;
  const data::Corpus corpus =
      train.data.paths.empty() ? data::vocabulary_only(train.data) : data::open_corpus(train.data);
  RunConfig config = resolve(train, corpus);
  if (!train.run.resume.empty())
    if (const auto resumed = find_resumed(find_run_directory(train), train.run.resume, config.notes,
                                          {.verify = false}))
      go_on_from(config, trained_by(*resumed));
  if (!train.devices.described.empty() && !gpu)
    config.notes.insert(config.notes.begin(),
                        fmt::format("gpu: {}{}, which need not be here",
                                    described_gpu(train.devices.described).device,
                                    options.memory ? ", with " + to_text(*options.memory) : ""));
  const data::DataOptions& data = train.data;
  if (data.paths.empty() && data.vocab_size == 0 && data.tokenizer == "byte")
    config.notes.insert(config.notes.begin(),
                        "vocabulary: bytes, as neither --data nor --tokenizer is given; "
                        "--vocab-size 32768 is nanochat's");
  if (train.run.sizes == CpuSizes::kQuick) config.notes.insert(config.notes.begin(), kQuickSizes);
  warn_of_unused_gpus(train.devices.backend, config.group, stderr);
  const MemoryBudget budget = memory_budget(config);
  const MemoryPlan memory =
      waiting("planning memory", [&] { return fit_memory(config, budget.to_plan); });
  if (gpu) {
    require_fit(config, memory, budget, train, corpus);
    const Roofline roofline = predict_step(config, *gpu);
    if (!std::isfinite(roofline.step) || roofline.step <= 0)
      throw input_error("--roofline {}: rates that give a step of {} s: mend the file",
                        options.roofline, roofline.step);
    print(json ? roofline_json(config, roofline, *gpu) : roofline_text(config, roofline, *gpu));
    return 0;
  }
  const std::optional<optim::MachineRates> rates = machine_rates(config, options.prediction);
  if (options.kind == PlanKind::kCompare) {
    const Comparison comparison = compare_strategies(config, rates);
    print(json ? compare_json(comparison) : compare_table(comparison));
    return 0;
  }
  PlanReport report{.run = plan_run(config, memory), .rates = rates};
  PlannedRun& run = report.run;
  plan_background_saves(run, budget.process, run.config.notes);
  if (train.devices.described.empty())
    report.time = expected_time(run.config, peak_of(run.config));
  else if (!options.gpu.empty())
    report.time = predicted_time(run.config, gpu_rates(options.gpu));
  report.fixed = graphs::plan_fixed_memory(run.config, run.params, run.plan, 0);
  print(json ? plan_json(report) : plan_table(report));
  require_fit(config, memory, budget, train, corpus);
  return 0;
}

}  // namespace muo::app
