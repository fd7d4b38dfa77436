#include "app/report/optimizer_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include "app/train/backend.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/text_table.h"
#include "optim/sharding_plan.h"
#include "optim/update_clock.h"

namespace muo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPhases = {UpdatePhase::kElementwise, UpdatePhase::kGemm,
                                UpdatePhase::kCommunication};

// Newton-Schulz of all matrices, once: what a strategy repeats, or pads, is not useful work.
double useful_flops(const RunConfig& config) {
  double flops = 0;
  for (const ParamSpec& param : gpt_parameters(config.model))
    if (update_group(param.role).rule == UpdateRule::kMuon)
      flops += newton_schulz_flops(param.shape,
                                   newton_schulz_form(config.options.optimizer.newton_schulz));
  return flops;
}

struct Figures {
  double ms = 0;                                  // of a step
  double flops_per_device = 0;                    // per second
  std::array<double, kPhases.size()> phase_ms{};  // mean of ranks and steps
  double communication_ms = 0;                    // that comm is busy
  std::array<double, kPhases.size()> thread_ms{};

  static double share(const std::array<double, kPhases.size()>& ms, std::size_t phase) {
    const double whole = ms[0] + ms[1] + ms[2];
    return whole > 0 ? ms[phase] / whole : 0;
  }
};

Figures figures_of(const RunConfig& config, const OptimizerTimes& times) {
  const auto ranks = static_cast<double>(times.update.size());
  const double per_step = 1e-6 / static_cast<double>(times.seconds.size()) / ranks;
  Figures out;
  const double seconds = median(times.seconds);
  out.ms = 1e3 * seconds;
  out.flops_per_device = useful_flops(config) / seconds / ranks;
  for (std::size_t rank = 0; rank < times.update.size(); ++rank) {
    for (std::size_t i = 0; i < kPhases.size(); ++i) {
      const auto phase = static_cast<std::size_t>(kPhases[i]);
      out.phase_ms[i] += per_step * static_cast<double>(times.update[rank].elapsed[phase]);
      out.thread_ms[i] += per_step * static_cast<double>(times.update[rank].thread[phase]);
    }
    const auto busy = static_cast<std::size_t>(CommPhase::kBusy);
    out.communication_ms += per_step * static_cast<double>(times.comm[rank].elapsed[busy]);
  }
  return out;
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

}  // namespace

std::string optimizer_table(const RunConfig& config, std::span<const OptimizerRow> rows) {
  const bool host = config.group.plugin == nullptr;
  std::vector<std::string> head = {"strategy", "ms",      host ? "GFLOP/s" : "TFLOP/s",
                                   "comm ms",  "exposed", "update",
                                   "GEMM",     "comm"};
  if (host) head.insert(head.end(), {"CPU ms", "update*", "GEMM*", "comm*"});
  Table table(std::move(head));
  for (const OptimizerRow& row : rows) {
    const Figures f = figures_of(config, row.times);
    std::vector<std::string> cells = {
        row.strategy, fmt::format("{:.3f}", f.ms),
        fmt::format("{:.1f}", f.flops_per_device / (host ? 1e9 : 1e12)),
        fmt::format("{:.3f}", f.communication_ms), fmt::format("{:.3f}", f.phase_ms.back())};
    for (std::size_t i = 0; i < kPhases.size(); ++i)
      cells.push_back(percent(Figures::share(f.phase_ms, i)));
    if (host) {
      cells.push_back(fmt::format("{:.3f}", f.thread_ms[0] + f.thread_ms[1] + f.thread_ms[2]));
      for (std::size_t i = 0; i < kPhases.size(); ++i)
        cells.push_back(percent(Figures::share(f.thread_ms, i)));
    }
    table.add(std::move(cells));
  }
  std::string out =
      table.text() +
      "  ms: of an update on the slowest device, the median. FLOP/s of a device: Newton-Schulz of\n"
      "  all matrices once, over that time and the devices. Comm: what communication takes;\n"
      "  exposed: what the update waits for it; mean of devices. Then shares of the time.\n";
  if (host)
    out +=
        "  CPU: processor time of a device, mean, and shares of it: what other programs leave as "
        "it "
        "is.\n";
  if (host && config.world() > usable_cores())
    out += fmt::format(
        "  {} devices share {} cores: the other times contain waiting for a core, and exposed\n"
        "  waiting for devices that have one.\n",
        config.world(), usable_cores());
  return out;
}

Json optimizer_json(const RunConfig& config, std::span<const OptimizerRow> rows) {
  const auto by_phase = [](const std::array<double, kPhases.size()>& values) {
    Json out;
    for (std::size_t i = 0; i < kPhases.size(); ++i)
      out[std::string(kUpdatePhases.at(static_cast<std::size_t>(kPhases[i])))] = values[i];
    return out;
  };
  Json strategies = Json::array();
  for (const OptimizerRow& row : rows) {
    const Figures f = figures_of(config, row.times);
    std::array<double, kPhases.size()> shares{};
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[i] = Figures::share(f.phase_ms, i);
    Json steps = Json::array();
    for (const double seconds : row.times.seconds)
      steps.push_back(1e3 * seconds);
    Json exposed = Json::array();
    for (const PhaseClock& clock : row.times.update)
      exposed.push_back(1e-6 / static_cast<double>(row.times.seconds.size()) *
                        static_cast<double>(
                            clock.elapsed[static_cast<std::size_t>(UpdatePhase::kCommunication)]));
    Json out = {{"strategy", row.strategy},
                {"update_ms", f.ms},
                {"gflops_per_device", 1e-9 * f.flops_per_device},
                {"communication_ms", f.communication_ms},
                {"exposed_communication_ms", f.phase_ms.back()},
                {"exposed_communication_ms_by_rank", exposed},
                {"phases_ms", by_phase(f.phase_ms)},
                {"shares", by_phase(shares)},
                {"steps_ms", steps}};
    if (config.group.plugin == nullptr) out["processor_ms"] = by_phase(f.thread_ms);
    strategies.push_back(std::move(out));
  }
  Json out = {{"newton_schulz_gflop", 1e-9 * useful_flops(config)}};
  if (config.group.plugin == nullptr) out["cores"] = usable_cores();
  out["strategies"] = std::move(strategies);
  return out;
}

}  // namespace muo
