#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/median.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/result_file.h"
#include "graphs/step_phases.h"
#include "kit/bench/operation_report.h"
#include "kit/bench/optimizer_times.h"
#include "kit/bench/step_times.h"
#include "trainer/run/backend.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_memory.h"
#include "trainer/run/tuning.h"
#include "trainer/run/world.h"

namespace muo::cli {
namespace {

using Json = nlohmann::ordered_json;

// Mean milliseconds per step in a phase, for each rank.
std::vector<double> phase_ms(const kit::StepTimes& times, std::size_t phase, std::int64_t steps) {
  std::vector<double> out;
  for (const PhaseClock& clock : times.clocks)
    out.push_back(static_cast<double>(clock.elapsed[phase]) / 1e6 / static_cast<double>(steps));
  return out;
}

double slowest_ms(const kit::StepTimes& times, graphs::StepPhase phase, std::int64_t steps) {
  return std::ranges::max(phase_ms(times, static_cast<std::size_t>(phase), steps));
}

std::string device_name(const trainer::RunConfig& run) {
  return run.group.plugin == nullptr ? "CPU" : run.group.plugin->name(0);
}

int processes_of(const trainer::RunConfig& run) {
  return run.group.processes == nullptr ? 1 : run.group.processes->processes();
}

Json run_json(const trainer::RunConfig& run) {
  return {{"backend", name_of(*run.options.devices.backend)},
          {"device", device_name(run)},
          {"ranks", run.world()},
          {"processes", processes_of(run)},
          {"ranks_per_device", run.group.ranks_per_device},
          {"comm", name_of(run.group.exchange != nullptr ? trainer::Comm::kMpi
                                                         : *run.options.devices.comm)},
          {"strategy", run.options.sharding.strategy},
          {"gather", name_of(run.options.sharding.gather)},
          {"dtype", name_of(run.model.dtype)},
          {"deterministic", run.model.attention.deterministic},
          {"parameters", run.parameters},
          {"tokens_per_step", run.tokens_per_step()},
          {"accumulation", run.step.accumulation},
          {"recompute", trainer::recompute_text(run)}};
}

std::string ranks_text(const trainer::RunConfig& run) {
  const int processes = processes_of(run);
  return fmt::format("{}: {}{}, {} parameters, {}", device_name(run),
                     run.world() == 1 ? "1 rank" : fmt::format("{} ranks", run.world()),
                     processes == 1 ? "" : fmt::format(" in {} processes", processes),
                     run.parameters, name_of(run.model.dtype));
}

std::string run_text(const trainer::RunConfig& run) {
  return fmt::format(
      "{}; {} tokens per step, accumulation {}{}\n", ranks_text(run), run.tokens_per_step(),
      run.step.accumulation,
      trainer::recompute_share(run) > 0 ? "; recomputes " + trainer::recompute_text(run) : "");
}

// Measures steps and prints each result to standard error when it is complete, so that an
// interrupted command leaves some results.
kit::StepTimes measure(trainer::RunConfig run, std::int64_t steps, bool graph, bool timed) {
  run.options.capture.graph = graph;
  run.step.timed = timed;
  kit::StepTimes times = kit::measure_steps(run, steps);
  if (run.group.is_first())
    say(stderr, fmt::format("{}{}: {:.3f} ms a step\n", graph ? "replayed" : "eager",
                            timed ? ", timed by phase" : "", times.step * 1e3));
  if (!times.timeline.empty()) say(stderr, times.timeline + "\n");
  return times;
}

double tokens_per_s(const trainer::RunConfig& run, const kit::StepTimes& times) {
  return static_cast<double>(run.tokens_per_step()) / times.step;
}

// --- bench step

// Power, clock and energy of a measured step; null if the driver does not report them.
Json power_json(const trainer::RunConfig& run, const kit::StepTimes& times) {
  if (!times.power) return nullptr;
  const double joules = times.power->watts() * times.power->devices * times.step;
  const double flops =
      model::flops_per_token(run.model) * static_cast<double>(run.tokens_per_step());
  return {{"watts", times.power->watts()},
          {"limit_watts", times.power->limit_watts},
          {"clock_mhz", times.power->clock_mhz},
          {"joules_per_step", joules},
          {"joules_per_micro_step", joules / static_cast<double>(run.step.accumulation)},
          {"picojoules_per_flop", 1e12 * joules / flops}};
}

std::string power_text(const Json& power) {
  if (power.is_null()) return "";
  const auto of = [&](const char* name) { return power[name].get<double>(); };
  return fmt::format(
      "{:.0f} of {:.0f} W a device at {:.0f} MHz; {:.3g} J a micro-step, {:.3g} pJ a FLOP of the "
      "model\n",
      of("watts"), of("limit_watts"), of("clock_mhz"), of("joules_per_micro_step"),
      of("picojoules_per_flop"));
}

constexpr double kSecondsOfReference = 0.5;

// Mean milliseconds per step, with a column for each rank. The share is that of all ranks together.
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

Json bench_step(const trainer::RunConfig& run, std::int64_t steps, std::string& text) {
  const kit::StepTimes times = measure(run, steps, run.options.capture.graph, /*timed=*/false);
  const kit::StepTimes phases = measure(run, steps, run.options.capture.graph, /*timed=*/true);
  const trainer::DevicePeak peak = trainer::peak_of(run, kSecondsOfReference);
  const double rate = model::flops_per_token(run.model) * tokens_per_s(run, times);
  const double causal = model::causal_flops_per_token(run.model) * tokens_per_s(run, times);
  Json out = {{"step_ms", times.step * 1e3}, {"tokens_per_s", tokens_per_s(run, times)},
              {"model_gflops", rate / 1e9},  {"causal_gflops", causal / 1e9},
              {"peak_gflops", nullptr},      {"share", nullptr},
              {"causal_share", nullptr},     {"power", power_json(run, times)}};
  text +=
      fmt::format("step {:.3f} ms, {:.0f} tokens/s, {} of the model, {} counting visible pairs\n",
                  times.step * 1e3, tokens_per_s(run, times), trainer::flops_text(rate),
                  trainer::flops_text(causal));
  if (peak.flops > 0) {
    out["peak_gflops"] = peak.flops / 1e9;
    out["share"] = rate / peak.flops;
    out["causal_share"] = causal / peak.flops;
    text += fmt::format("{:.1f}% of the peak ({:.1f}% counting visible pairs): {}\n",
                        100 * rate / peak.flops, 100 * causal / peak.flops, peak.text);
  }
  text += power_text(out["power"]);
  Json& phases_json = out["phases_ms"];
  for (std::size_t phase = 0; phase < graphs::kStepPhases.size(); ++phase)
    phases_json[std::string(graphs::kStepPhases[phase])] = phase_ms(phases, phase, steps);
  text += phases_text(phases_json, phases.clocks.size());
  Json& operations = out["operations"];
  if (phases.operations.empty()) {
    text += "no table of operations: only the host backend's graphs (--graph on) time them\n";
  } else {
    const kit::ReferenceRates reference =
        kit::measure_reference_rates(run, peak, kSecondsOfReference);
    text += kit::operations_text(run, phases, steps, reference);
    operations = kit::operations_json(run, phases, steps, reference);
  }
  return out;
}

// --- bench launch

Json bench_launch(const trainer::RunConfig& run, std::int64_t steps, std::string& text) {
  const kit::StepTimes replay = measure(run, steps, /*graph=*/true, /*timed=*/false);
  const kit::StepTimes eager = measure(run, steps, /*graph=*/false, /*timed=*/false);
  const kit::StepTimes timed = measure(run, steps, /*graph=*/true, /*timed=*/true);
  const bool host = run.group.plugin == nullptr;  // a launch then includes the computation
  const auto row = [&](std::string_view name, const kit::StepTimes& times) {
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

Json bench_optimizer(trainer::RunConfig run, const std::string& strategy, std::int64_t steps,
                     std::string& text) {
  std::vector<kit::OptimizerRow> rows;
  for (const optim::Strategy& each : optim::strategy_list()) {
    const std::string_view name = each.name;
    if (strategy != trainer::kAllStrategies && strategy != name) continue;
    if (!trainer::use_strategy(run, each)) continue;
    rows.push_back({run.options.sharding.strategy, kit::measure_optimizer(run, steps)});
    if (!run.group.is_first()) continue;
    say(stderr,
        fmt::format("{}: {:.3f} ms an update\n", name, 1e3 * median(rows.back().times.seconds)));
  }
  if (!run.group.is_first()) return Json::object();
  text = fmt::format("{}; optimizer {}, gather {}\n", ranks_text(run),
                     run.options.optimizer.version, name_of(run.options.sharding.gather)) +
         kit::optimizer_table(run, rows);
  return kit::optimizer_json(run, rows);
}

// With several processes, all of them measure and process 0 prints the results.
int bench(const trainer::BenchOptions& options, const trainer::LaunchedWorld* world) {
  const trainer::TrainOptions& train = options.train;
  if (!train.run.timeline.empty()) require_writable("--timeline", train.run.timeline);
  // The benchmark generates random tokens.
  const data::Corpus corpus = data::corpus_without_tokens(train.data);
  trainer::RunConfig run = trainer::resolve(train, corpus);
  const bool first = run.group.is_first();
  if (first && train.run.sizes == trainer::CpuSizes::kQuick)
    say(stderr, fmt::format("{}\n", trainer::kQuickSizes));
  if (first) trainer::warn_of_unused_gpus(train.devices.backend, run.group, stderr);
  if (first && world != nullptr) say(stderr, fmt::format("{}\n", world->text()));
  trainer::require_same_run(run, {{"what is measured", std::string(name_of(options.kind))},
                                  {"--steps", std::to_string(options.steps)}});
  if (options.kind != trainer::BenchKind::kOptimizer) {
    const trainer::MemoryBudget budget = trainer::agreed_budget(run);
    trainer::fit_memory(run, budget.to_plan);  // as in training
    run.step_only = true;
    trainer::require_fit(run, trainer::plan_run_memory(run), budget, train, corpus);
    trainer::require_batches(run, budget.process);
  }
  trainer::Tuning tuning(run);
  std::string text = run_text(run);
  Json out = run_json(run);
  out["steps"] = options.steps;
  if (options.kind != trainer::BenchKind::kOptimizer) {
    const std::vector<std::string> attention = trainer::attention_notes(run);
    out["attention"] = attention;
    for (const std::string& note : attention)
      text += note + "\n";
  }
  if (options.kind == trainer::BenchKind::kStep) out.update(bench_step(run, options.steps, text));
  if (options.kind == trainer::BenchKind::kLaunch)
    out.update(bench_launch(run, options.steps, text));
  if (options.kind == trainer::BenchKind::kOptimizer)
    out.update(bench_optimizer(run, run.options.sharding.strategy, options.steps, text));
  tuning.keep();
  if (run.group.processes != nullptr) run.group.processes->leave();
  if (!first) return 0;
  for (const std::string& note : tuning.take_notes())
    say(stderr, fmt::format("{}\n", note));
  if (options.format == trainer::ReportFormat::kJson) text = out.dump(1) + "\n";
  static_cast<void>(std::fputs(text.c_str(), stdout));
  return 0;
}

}  // namespace

int run_command(const trainer::BenchOptions& options) {
  trainer::BenchOptions joined = options;
  const auto secret_folder = [](const trainer::Launch& launch) {
    return launch.processes_here == launch.processes ? std::filesystem::temp_directory_path()
                                                     : std::filesystem::path();
  };
  return trainer::run_in_world(
      joined.train.devices, secret_folder,
      [&](const trainer::LaunchedWorld* world) { return bench(joined, world); });
}

}  // namespace muo::cli
