#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "kit/plan/roofline.h"
#include "trainer/run/memory_fit.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMinShare = 2e-3;  // smallest share of a step that the text lists

// Returns the kind of work under which the operation is summed.
std::string_view kind_of(const OperationTime& work) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kKinds = {
      {{"attention_backward", "attention backward"},
       {"attention", "attention forward"},
       {"cross_entropy", "cross-entropy"},
       {"relu_squared", "activation"},
       {"relu_squared_backward", "activation"},
       {"rms_norm", "norms and mixing"},
       {"rms_norm_backward", "norms and mixing"},
       {"mix_norm", "norms and mixing"},
       {"mix_norm_backward", "norms and mixing"},
       {"rotary_norm", "rotary and QK norm"},
       {"rotary_norm_backward", "rotary and QK norm"},
       {"group_tokens", "embedding gradients"},
       {"embedding_backward", "embedding gradients"}}};
  if (work.is_collective()) return "collectives";
  if (work.phase != "forward" && work.phase != "losses" && work.phase != "backward" &&
      work.phase != "micro-step")
    return "optimizer";
  if (work.is_product()) {
    if (work.phase == "losses") return "head";
    return work.shape.starts_with('T') ? "products: dW" : "products: y and dX";
  }
  for (const auto& [name, kind] : kKinds)
    if (work.name == name) return kind;
  return "gates, embeddings, other";
}

struct Sum {
  std::string_view kind;
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};
std::vector<Sum> sums_of(const Roofline& roofline) {
  std::vector<Sum> sums;
  for (const PredictedOperation& row : roofline.operations) {
    const std::string_view kind = kind_of(row.work);
    auto sum = std::ranges::find(sums, kind, &Sum::kind);
    if (sum == sums.end()) sum = sums.insert(sums.end(), Sum{.kind = kind});
    sum->calls += row.work.calls;
    sum->seconds += row.work.seconds;
    sum->flops += row.work.flops;
    sum->bytes += row.work.bytes;
  }
  std::ranges::stable_sort(sums, std::greater{}, &Sum::seconds);
  return sums;
}

struct Speed {
  double tokens_per_s, utilisation;
};
Speed speed_of(const trainer::RunConfig& run, const Roofline& roofline, const GpuRates& rates) {
  const double tokens = static_cast<double>(run.tokens_per_step()) / roofline.step;
  return {tokens, run.flops_per_token * tokens / (rates.peak_flops * run.world())};
}

constexpr double kMHz = 1e6, kPico = 1e-12;

std::string power_text(const Roofline& roofline, const GpuRates& rates, double micro) {
  const StepPower& power = roofline.power;
  if (power.joules == 0)
    return fmt::format(
        "at {:.0f} MHz: a power limit is not predicted, because joules_per_flop is "
        "not known of {}",
        power.clock / kMHz, rates.joules_per_flop == 0 ? "this GPU" : "fp32 products");
  return fmt::format(
      "{:.0f} of {:.0f} MHz, {} the power limit: {:.0f} of {:.0f} W; {:.1f} J a "
      "micro-step, {:.2f} pJ an executed FLOP",
      power.clock / kMHz, rates.max_clock / kMHz, power.is_at_limit ? "lowered by" : "below",
      power.joules / power.seconds, rates.power_limit, power.joules / micro,
      power.joules / roofline.executed_flops / kPico);
}

}  // namespace

std::string roofline_text(const trainer::RunConfig& run, const Roofline& roofline,
                          const GpuRates& rates) {
  const auto micro = static_cast<double>(run.step.accumulation);
  const Speed speed = speed_of(run, roofline, rates);
  std::string out = fmt::format(
      "PREDICTED, not measured{}: a step on {} {} of {:.2f} ms\n"
      "  {} micro-steps of {} tokens, {:.2f} ms each{}; {:.0f} tokens/s\n"
      "  {:.1f}% of {:.0f} TFLOP/s by nanochat's count of FLOPs; {} nodes, {} in the longest "
      "chain\n  {}\n\n",
      rates.gpu == "h100" ? "" : ", rates scaled from an H100's", run.world(), rates.gpu,
      1e3 * roofline.step, run.step.accumulation, run.step.batch * run.model.seq_len,
      1e3 * roofline.step / micro,
      trainer::recompute_share(run) > 0 ? ", recomputing " + trainer::recompute_text(run) : "",
      speed.tokens_per_s, 100 * speed.utilisation, rates.peak_flops / 1e12, grouped(roofline.nodes),
      grouped(roofline.longest_chain), power_text(roofline, rates, micro));
  Table kinds({"kind, per micro-step", "calls", "TFLOP", "GB", "ms", "share"});
  for (const Sum& sum : sums_of(roofline))
    kinds.add({std::string(sum.kind), fmt::format("{:.1f}", static_cast<double>(sum.calls) / micro),
               fmt::format("{:.2f}", sum.flops / micro / 1e12),
               fmt::format("{:.1f}", sum.bytes / micro / 1e9),
               fmt::format("{:.2f}", 1e3 * sum.seconds / micro),
               percent_text(sum.seconds / roofline.step)});
  out += kinds.text() + "\n";
  Table table(
      {"operation, per step", "phase", "calls", "tiles", "waves", "bound by", "ms", "share"});
  for (const PredictedOperation& row : roofline.operations) {
    if (row.work.seconds < kMinShare * roofline.step) continue;
    table.add({row.work.shape.empty() ? row.work.name
                                      : fmt::format("{} {}", row.work.name, row.work.shape),
               row.work.phase, grouped(row.work.calls),
               row.tiles > 0 ? fmt::format("{:.0f}", row.tiles) : "",
               row.tiles > 0 ? fmt::format("{:.0f}", row.waves) : "", std::string(row.ceiling),
               fmt::format("{:.2f}", 1e3 * row.work.seconds),
               percent_text(row.work.seconds / roofline.step)});
  }
  return out + table.text();
}

std::string roofline_json(const trainer::RunConfig& run, const Roofline& roofline,
                          const GpuRates& rates) {
  const auto micro = static_cast<double>(run.step.accumulation);
  const Speed speed = speed_of(run, roofline, rates);
  Json inputs;
  for (const RateRow& row : rate_rows())
    inputs[std::string(row.name)] = {{"value", rates.*row.field}, {"source", row.source}};
  Json kinds = Json::array();
  for (const Sum& sum : sums_of(roofline))
    kinds.push_back({{"kind", sum.kind},
                     {"calls", sum.calls},
                     {"tflop", sum.flops / 1e12},
                     {"gb", sum.bytes / 1e9},
                     {"ms", 1e3 * sum.seconds}});
  Json measured = Json::array();
  for (const auto* values :
       {&rates.measured_products, &rates.measured_attention, &rates.measured_memory})
    for (const auto& [name, value] : *values)
      measured.push_back(name);
  Json rows = Json::array();
  for (const PredictedOperation& row : roofline.operations)
    rows.push_back({{"operation", row.work.name},
                    {"shape", row.work.shape},
                    {"phase", row.work.phase},
                    {"dtype", name_of(row.work.dtype)},
                    {"kind", kind_of(row.work)},
                    {"calls", row.work.calls},
                    {"gflop", row.work.flops / 1e9},
                    {"mb", row.work.bytes / 1e6},
                    {"tiles", row.tiles},
                    {"waves", row.waves},
                    {"bound_by", row.ceiling},
                    {"ms", 1e3 * row.work.seconds}});
  const StepPower& power = roofline.power;
  Json out = {{"predicted", true},
              {"gpu", rates.gpu},
              {"world", run.world()},
              {"depth", run.model.n_layer},
              {"width", run.model.n_embd},
              {"micro_steps", run.step.accumulation},
              {"micro_step_tokens", run.step.batch * run.model.seq_len},
              {"deterministic", run.model.attention.deterministic},
              {"step_ms", 1e3 * roofline.step},
              {"micro_step_ms", 1e3 * roofline.step / micro},
              {"kernels_ms", 1e3 * roofline.kernels},
              {"collectives_ms", 1e3 * roofline.collectives},
              {"tokens_per_s", speed.tokens_per_s},
              {"utilisation", speed.utilisation},
              {"nodes", roofline.nodes},
              {"longest_chain", roofline.longest_chain},
              {"clock_mhz", power.clock / kMHz},
              {"at_power_limit", power.is_at_limit}};
  if (power.joules > 0) {
    out["watts"] = power.joules / power.seconds;
    out["micro_step_joules"] = power.joules / micro;
    out["executed_tflop"] = roofline.executed_flops / 1e12;
    out["picojoules_per_flop"] = power.joules / roofline.executed_flops / kPico;
  }
  out["kinds"] = kinds;
  out["rates"] = inputs;
  out["measured"] = measured;
  out["operations"] = rows;
  return out.dump(1) + "\n";
}

}  // namespace muo::kit
