#include "kit/bench/operation_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/text_table.h"
#include "kernels/attention.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMinShare = 5e-4;  // smallest share of the work that the text lists

bool is_attention(const OperationTime& row) { return row.name.starts_with("attention"); }

// Stages of the optimizer, each with its phases (graphs, optim).
struct Stage {
  std::string_view name;
  std::vector<std::string_view> phases;
};
const std::array<Stage, 4> kOptimizer = {{{"compute", {"begin", "update"}},
                                          {"reduce", {"reduce", "exchange", "return"}},
                                          {"commit", {"commit", "finish"}},
                                          {"gather", {"gather"}}}};

// Seconds per step, averaged over devices.
struct Summary {
  double step = 0;
  double work = 0;  // time in which threads ran operations; the next four are parts of it
  double gemm = 0;
  double attention = 0;
  double optimizer_gemm = 0;
  std::array<double, kOptimizer.size()> optimizer{};
  double other_devices = 0;  // waiting for other devices, in collectives
  double processor = 0;      // waiting for a core, in other operations

  [[nodiscard]] double whole_optimizer() const {
    return std::accumulate(optimizer.begin(), optimizer.end(), 0.0);
  }
  [[nodiscard]] double outside() const { return work - gemm - attention; }
  [[nodiscard]] double between() const { return step - work - other_devices - processor; }
};

Summary summarise(const StepTimes& times, double per_step) {
  Summary out{.step = times.step};
  for (const OperationTime& row : times.operations) {
    const double seconds = row.seconds * per_step;
    out.work += seconds;
    (row.is_collective() ? out.other_devices : out.processor) += row.waited * per_step;
    if (row.is_product()) out.gemm += seconds;
    if (is_attention(row)) out.attention += seconds;
    for (std::size_t i = 0; i < kOptimizer.size(); ++i) {
      if (std::ranges::find(kOptimizer[i].phases, row.phase) == kOptimizer[i].phases.end())
        continue;
      out.optimizer[i] += seconds;
      if (row.is_product()) out.optimizer_gemm += seconds;
    }
  }
  return out;
}

// The factor that turns sums over all ranks and steps into means.
double mean_factor(const trainer::RunConfig& run, std::int64_t steps) {
  return 1 / (static_cast<double>(run.world()) * static_cast<double>(steps));
}

std::vector<OperationTime> sorted(std::vector<OperationTime> rows) {
  std::ranges::stable_sort(rows, std::greater{}, &OperationTime::seconds);
  return rows;
}

double share_of_reference(const OperationTime& row, const ReferenceRates& reference) {
  if (row.seconds <= 0) return 0;
  if (row.flops <= 0) return row.bytes / row.seconds / reference.bytes;
  const bool bf16 = row.dtype == DType::kBF16 &&
                    (row.is_product() || (is_attention(row) && host_attention_multiplies_bf16()));
  return row.flops / row.seconds / (bf16 ? reference.bf16 : reference.fp32);
}

}  // namespace

ReferenceRates measure_reference_rates(const trainer::RunConfig& run,
                                       const trainer::DevicePeak& peak, double seconds) {
  const GroupOptions group = run.group.alone();
  const int at_once = trainer::devices_at_once(group);
  const double of_run = peak.flops * group.world / run.world() / at_once;
  const double bytes = trainer::measure_copy_rate(group, seconds) / at_once;
  if (run.model.dtype == DType::kF32) return {.fp32 = of_run, .bf16 = 0, .bytes = bytes};
  const double fp32 =
      trainer::measure_gemm_rate(group, DType::kF32, trainer::kRateSize, seconds) / at_once;
  return {.fp32 = fp32, .bf16 = of_run, .bytes = bytes};
}

std::string operations_text(const trainer::RunConfig& run, const StepTimes& times,
                            std::int64_t steps, const ReferenceRates& reference) {
  const double per_step = mean_factor(run, steps);
  const Summary all = summarise(times, per_step);
  Table table({"operation", "phase", "dtype", "calls", "ms", "share", "rate", "reference"});
  int small = 0;
  double small_seconds = 0;
  for (const OperationTime& row : sorted(times.operations)) {
    const double seconds = row.seconds * per_step;
    if (seconds < kMinShare * all.work) {
      ++small;
      small_seconds += seconds;
      continue;
    }
    const double rate = (row.flops > 0 ? row.flops : row.bytes) / row.seconds / 1e9;
    table.add({row.shape.empty() ? row.name : fmt::format("{} {}", row.name, row.shape), row.phase,
               std::string(name_of(row.dtype)),
               fmt::format("{:.0f}", static_cast<double>(row.calls) * per_step),
               fmt::format("{:.2f}", 1e3 * seconds), percent_text(seconds / all.work),
               fmt::format("{:.1f} {}", rate, row.flops > 0 ? "GF/s" : "GB/s"),
               fmt::format("{:.0f}%", 100 * share_of_reference(row, reference))});
  }
  table.add({fmt::format("{} smaller rows", small), "", "", "",
             fmt::format("{:.2f}", 1e3 * small_seconds), percent_text(small_seconds / all.work)});
  const auto share_of_step = [&](double seconds) { return percent_text(seconds / all.step); };
  const auto share_of_work = [&](double seconds) { return percent_text(seconds / all.work); };
  std::string out = fmt::format(
      "a device's step of {:.3f} ms: operations {}, waiting for other devices {}, for a core\n"
      "{}, between operations {}. Operations, by the running time of their threads:\n{}",
      1e3 * all.step, share_of_step(all.work), share_of_step(all.other_devices),
      share_of_step(all.processor), share_of_step(all.between()), table.text());
  out += fmt::format(
      "  reference: {} in large fp32 matrix products{}, {:.1f} GB/s in copies from memory,\n"
      "  per device, all at once, measured now; cached data may be faster\n",
      trainer::flops_text(reference.fp32),
      reference.bf16 > 0 ? fmt::format(", {} in bf16", trainer::flops_text(reference.bf16)) : "",
      reference.bytes / 1e9);
  out += fmt::format(
      "  matrix products {} (the optimizer's {}), attention {}, outside both {}\n"
      "  (including all waiting: {} of the step)\n",
      share_of_work(all.gemm), share_of_work(all.optimizer_gemm), share_of_work(all.attention),
      share_of_work(all.outside()), share_of_step(all.step - all.gemm - all.attention));
  out += fmt::format("  optimizer {}:", share_of_work(all.whole_optimizer()));
  for (std::size_t i = 0; i < kOptimizer.size(); ++i)
    out += fmt::format("{} {} {}", i == 0 ? "" : ",", kOptimizer[i].name,
                       share_of_work(all.optimizer[i]));
  return out + "\n";
}

Json operations_json(const trainer::RunConfig& run, const StepTimes& times, std::int64_t steps,
                     const ReferenceRates& reference) {
  const double per_step = mean_factor(run, steps);
  const Summary all = summarise(times, per_step);
  Json rows = Json::array();
  for (const OperationTime& row : sorted(times.operations))
    rows.push_back({{"operation", row.name},
                    {"shape", row.shape},
                    {"phase", row.phase},
                    {"dtype", name_of(row.dtype)},
                    {"calls", static_cast<double>(row.calls) * per_step},
                    {"ms", 1e3 * row.seconds * per_step},
                    {"waited_ms", 1e3 * row.waited * per_step},
                    {"share", row.seconds * per_step / all.work},
                    {"gflop", 1e-9 * row.flops * per_step},
                    {"mb", 1e-6 * row.bytes * per_step},
                    {"of_reference", share_of_reference(row, reference)}});
  Json optimizer = {{"whole", all.whole_optimizer() / all.work}};
  for (std::size_t i = 0; i < kOptimizer.size(); ++i)
    optimizer[std::string(kOptimizer[i].name)] = all.optimizer[i] / all.work;
  return {{"step_ms", 1e3 * all.step},
          {"of_step",
           {{"operations", all.work / all.step},
            {"waiting_for_devices", all.other_devices / all.step},
            {"waiting_for_processor", all.processor / all.step},
            {"between", all.between() / all.step}}},
          {"of_operations",
           {{"gemm", all.gemm / all.work},
            {"optimizer_gemm", all.optimizer_gemm / all.work},
            {"attention", all.attention / all.work},
            {"outside", all.outside() / all.work},
            {"optimizer", optimizer}}},
          {"reference_rates",
           {{"fp32_gflops", reference.fp32 / 1e9},
            {"bf16_gflops", reference.bf16 > 0 ? Json(reference.bf16 / 1e9) : Json()},
            {"gbytes_per_s", reference.bytes / 1e9}}},
          {"rows", rows}};
}

}  // namespace muo::kit
