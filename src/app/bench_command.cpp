#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench/operation_report.h"
#include "app/bench/optimizer_times.h"
#include "app/bench/step_times.h"
#include "app/cli.h"
#include "app/run/backend.h"
#include "app/run/device_rates.h"
#include "app/run/memory_advice.h"
#include "app/run/memory_fit.h"
#include "app/run/run_config.h"
#include "app/run/run_memory.h"
#include "app/run/tuning.h"
#include "app/run/world.h"
#include "base/median.h"
#include "base/terminal.h"
#include "graphs/step_phases.h"

namespace muo::app {
namespace {

using Json = nlohmann::ordered_json;

// Mean milliseconds of a step in a phase, by rank.
std::vector<double> phase_ms(const StepTimes& times, std::size_t phase, std::int64_t steps) {
  std::vector<double> out;
  for (const PhaseClock& clock : times.clocks)
    out.push_back(static_cast<double>(clock.elapsed[phase]) / 1e6 / static_cast<double>(steps));
  return out;
}

double slowest_ms(const StepTimes& times, graphs::StepPhase phase, std::int64_t steps) {
  return std::ranges::max(phase_ms(times, static_cast<std::size_t>(phase), steps));
}

std::string device_name(const RunConfig& run) {
  return run.group.plugin == nullptr ? "CPU" : run.group.plugin->name(0);
}

int processes_of(const RunConfig& run) {
  return run.group.processes == nullptr ? 1 : run.group.processes->processes();
}

Json run_json(const RunConfig& run) {
  return {{"backend", name_of(*run.options.devices.backend)},
          {"device", device_name(run)},
          {"ranks", run.world()},
          {"processes", processes_of(run)},
          {"ranks_per_device", run.group.ranks_per_device},
          {"comm", name_of(run.group.exchange != nullptr ? Comm::kMpi : *run.options.devices.comm)},
          {"strategy", run.options.sharding.strategy},
          {"gather", name_of(run.options.sharding.gather)},
          {"dtype", name_of(run.model.dtype)},
          {"deterministic", run.model.attention.deterministic},
          {"parameters", run.parameters},
          {"tokens_per_step", run.tokens_per_step()},
          {"accumulation", run.step.accumulation},
          {"recompute", recompute_text(run)}};
}

std::string ranks_text(const RunConfig& run) {
  const int processes = processes_of(run);
  return fmt::format("{}: {}{}, {} parameters, {}", device_name(run),
                     run.world() == 1 ? "1 rank" : fmt::format("{} ranks", run.world()),
                     processes == 1 ? "" : fmt::format(" in {} processes", processes),
                     run.parameters, name_of(run.model.dtype));
}

std::string run_text(const RunConfig& run) {
  return fmt::format("{}; {} tokens per step, accumulation {}{}\n", ranks_text(run),
                     run.tokens_per_step(), run.step.accumulation,
                     recompute_share(run) > 0 ? "; recomputes " + recompute_text(run) : "");
}

// On standard error as each is there: what a command that is interrupted leaves.
StepTimes measure(RunConfig run, std::int64_t steps, bool graph, bool timed) {
  run.options.capture.graph = graph;
  run.step.timed = timed;
  StepTimes times = measure_steps(run, steps);
  if (run.group.is_first())
    say(stderr, fmt::format("{}{}: {:.3f} ms a step\n", graph ? "replayed" : "eager",
                            timed ? ", timed by phase" : "", times.step * 1e3));
  return times;
}

double tokens_per_s(const RunConfig& run, const StepTimes& times) {
  return static_cast<double>(run.tokens_per_step()) / times.step;
}

// --- bench step

constexpr double kSecondsOfReference = 0.5;

// Mean milliseconds per step, a column a rank; the share is that of all ranks together.
std::string phases_text(const Json& phases_ms, std::size_t ranks) {
  std::string out = fmt::format("{:>10}{:>8}", "ms/step", "share");
  for (std::size_t rank = 0; rank < ranks; ++rank)
    out += fmt::format("{:>11}", fmt::format("rank {}", rank));
  const auto sum_of = [](const std::vector<double>& ms) {
    return std::accumulate(ms.begin(), ms.end(), 0.0);
  };
  double whole = 0;
  for (const auto& ms : phases_ms)
    whole += sum_of(ms);
  for (const auto& [phase, ms] : phases_ms.items())
    out += fmt::format("\n{:>10}{:>7.1f}%{:>11.3f}", phase, 100 * sum_of(ms) / whole,
                       fmt::join(ms.get<std::vector<double>>(), ""));
  return out + "\n";
}

Json bench_step(const RunConfig& run, std::int64_t steps, std::string& text) {
  const StepTimes times = measure(run, steps, run.options.capture.graph, /*timed=*/false);
  const StepTimes phases = measure(run, steps, run.options.capture.graph, /*timed=*/true);
  const DevicePeak peak = peak_of(run, kSecondsOfReference);
  const double rate = model::flops_per_token(run.model) * tokens_per_s(run, times);
  const double causal = model::causal_flops_per_token(run.model) * tokens_per_s(run, times);
  Json out = {{"step_ms", times.step * 1e3}, {"tokens_per_s", tokens_per_s(run, times)},
              {"model_gflops", rate / 1e9},  {"causal_gflops", causal / 1e9},
              {"peak_gflops", nullptr},      {"share", nullptr},
              {"causal_share", nullptr}};
  text +=
      fmt::format("step {:.3f} ms, {:.0f} tokens/s, {} of the model, {} counting visible pairs\n",
                  times.step * 1e3, tokens_per_s(run, times), flops_text(rate), flops_text(causal));
  if (peak.flops > 0) {
    out["peak_gflops"] = peak.flops / 1e9;
    out["share"] = rate / peak.flops;
    out["causal_share"] = causal / peak.flops;
    text += fmt::format("{:.1f}% of the peak ({:.1f}% counting visible pairs): {}\n",
                        100 * rate / peak.flops, 100 * causal / peak.flops, peak.text);
  }
  Json& phases_json = out["phases_ms"];
  for (std::size_t phase = 0; phase < graphs::kStepPhases.size(); ++phase)
    phases_json[std::string(graphs::kStepPhases[phase])] = phase_ms(phases, phase, steps);
  text += phases_text(phases_json, phases.clocks.size());
  Json& operations = out["operations"];
  if (phases.operations.empty()) {
    text += "no table of operations: only graphs of the host backend (--graph on) time theirs\n";
  } else {
    const ReferenceRates reference = measure_reference_rates(run, peak, kSecondsOfReference);
    text += operations_text(run, phases, steps, reference);
    operations = operations_json(run, phases, steps, reference);
  }
  return out;
}

// --- bench launch

Json bench_launch(const RunConfig& run, std::int64_t steps, std::string& text) {
  const StepTimes replay = measure(run, steps, /*graph=*/true, /*timed=*/false);
  const StepTimes eager = measure(run, steps, /*graph=*/false, /*timed=*/false);
  const StepTimes timed = measure(run, steps, /*graph=*/true, /*timed=*/true);
  const bool host = run.group.plugin == nullptr;  // where a launch computes
  const auto row = [&](std::string_view name, const StepTimes& times) {
    text += fmt::format("{:>8}{:>12.3f} ms{:>12.0f} tokens/s", name, times.step * 1e3,
                        tokens_per_s(run, times));
    if (!host) text += fmt::format("{:>12.1f} us", 1e6 * std::ranges::max(times.launch));
    text += "\n";
    Json out = {{"step_ms", times.step * 1e3}, {"tokens_per_s", tokens_per_s(run, times)}};
    if (!host) {
      Json launches = Json::array();
      for (const double seconds : times.launch)
        launches.push_back(1e6 * seconds);
      out["host_us"] = std::move(launches);  // by rank
    }
    return out;
  };
  text += fmt::format("{:>23}{}\n", "step", host ? "" : fmt::format("{:>36}", "host"));
  Json out;
  out["replay"] = row("replay", replay);
  out["eager"] = row("eager", eager);
  out["replay_over_eager"] = eager.step / replay.step;
  const double update = slowest_ms(timed, graphs::StepPhase::kUpdate, steps);
  const double gather = slowest_ms(timed, graphs::StepPhase::kGather, steps);
  out["exposed_update_ms"] = update;
  out["exposed_gather_ms"] = gather;
  text += fmt::format(
      "exposed on the slowest rank: {:.3f} ms of reductions and updates, {:.3f} ms of commit and "
      "gather\n",
      update, gather);
  return out;
}

// --- bench optimizer

Json bench_optimizer(RunConfig run, const std::string& strategy, std::int64_t steps,
                     std::string& text) {
  std::vector<OptimizerRow> rows;
  for (const optim::Strategy& each : optim::strategy_list()) {
    const std::string_view name = each.name;
    if (strategy != kAllStrategies && strategy != name) continue;
    if (!use_strategy(run, each)) continue;
    rows.push_back({run.options.sharding.strategy, measure_optimizer(run, steps)});
    if (!run.group.is_first()) continue;
    say(stderr,
        fmt::format("{}: {:.3f} ms an update\n", name, 1e3 * median(rows.back().times.seconds)));
  }
  if (!run.group.is_first()) return Json::object();
  text = fmt::format("{}; optimizer {}, gather {}\n", ranks_text(run),
                     run.options.optimizer.version, name_of(run.options.sharding.gather)) +
         optimizer_table(run, rows);
  return optimizer_json(run, rows);
}

// In a world of several processes all of them measure, and the first one says it.
int bench(const BenchOptions& options, const LaunchedWorld* world) {
  const TrainOptions& train = options.train;
  const data::Corpus corpus = data::vocabulary_only(train.data);  // tokens are random
  RunConfig run = resolve(train, corpus);
  const bool first = run.group.is_first();
  if (first && train.run.sizes == CpuSizes::kQuick) say(stderr, fmt::format("{}\n", kQuickSizes));
  if (first) warn_of_unused_gpus(train.devices.backend, run.group, stderr);
  if (first && world != nullptr) say(stderr, fmt::format("{}\n", world->text()));
  require_same_run(run, {{"what is measured", std::string(name_of(options.kind))},
                         {"--steps", std::to_string(options.steps)}});
  if (options.kind != BenchKind::kOptimizer) {
    const MemoryBudget budget = agreed_budget(run);
    fit_memory(run, budget.to_plan);  // as training would
    run.step_only = true;
    require_fit(run, plan_run_memory(run), budget, train, corpus);
    require_batches(run, budget.process);
  }
  Tuning tuning(run);
  std::string text = run_text(run);
  Json out = run_json(run);
  out["steps"] = options.steps;
  if (options.kind != BenchKind::kOptimizer) {
    const std::vector<std::string> attention = attention_notes(run);
    out["attention"] = attention;
    for (const std::string& note : attention)
      text += note + "\n";
  }
  if (options.kind == BenchKind::kStep) out.update(bench_step(run, options.steps, text));
  if (options.kind == BenchKind::kLaunch) out.update(bench_launch(run, options.steps, text));
  if (options.kind == BenchKind::kOptimizer)
    out.update(bench_optimizer(run, run.options.sharding.strategy, options.steps, text));
  tuning.keep();
  if (run.group.processes != nullptr) run.group.processes->leave();
  if (!first) return 0;
  for (const std::string& note : tuning.take_notes())
    say(stderr, fmt::format("{}\n", note));
  if (options.format == ReportFormat::kJson) text = out.dump(1) + "\n";
  static_cast<void>(std::fputs(text.c_str(), stdout));
  return 0;
}

}  // namespace

int run_command(const BenchOptions& options) {
  BenchOptions joined = options;
  const auto folder_of_secret = [](const Launch& launch) {
    return launch.processes_here == launch.processes ? std::filesystem::temp_directory_path()
                                                     : std::filesystem::path();
  };
  return run_in_world(joined.train.devices, folder_of_secret,
                      [&](const LaunchedWorld* world) { return bench(joined, world); });
}

}  // namespace muo::app
