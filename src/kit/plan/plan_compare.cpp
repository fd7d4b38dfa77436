#include "kit/plan/plan_compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/text_table.h"
#include "kit/plan/plan_report.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {
namespace {

using Json = nlohmann::ordered_json;

// Categories of memory that depend on the strategy.
constexpr std::array kCategories = {MemoryCategory::kWeights,  MemoryCategory::kGradients,
                                    MemoryCategory::kMomentum, MemoryCategory::kAdamState,
                                    MemoryCategory::kMasters,  MemoryCategory::kUpdate,
                                    MemoryCategory::kStaging};

std::int64_t max_sent(const optim::PlanCost& cost) {
  return *std::ranges::max_element(cost.sent_bytes);
}
double max_flops(const optim::PlanCost& cost) { return *std::ranges::max_element(cost.muon_flops); }

std::string times_text(const Comparison& comparison) {
  if (!comparison.rates) return "";
  Table table({"predicted ms", "communication", "Newton-Schulz", "commit", "added to step",
               "exposed communication", "exposed Newton-Schulz"});
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
  for (const auto& [strategy, cost, memory, time] : comparison.costs)
    table.add({strategy, ms(time.communication_s), ms(time.newton_schulz_s), ms(time.commit_s),
               ms(time.update_s), ms(time.communication_exposed_s),
               ms(time.newton_schulz_exposed_s)});
  return "\n" + table.text() +
         fmt::format(
             "  At {}.\n  Exposed: the part of the added time that an infinitely fast link or "
             "infinitely fast\n  products would save.\n",
             rates_text(*comparison.rates));
}

}  // namespace

Comparison compare_strategies(const trainer::RunConfig& config,
                              const std::optional<optim::MachineRates>& rates) {
  const std::vector<ParamSpec> params = model::gpt_parameters(config.model);
  Comparison out{config, rates, {}};
  trainer::RunConfig run = config;
  for (const optim::Strategy& strategy : optim::strategy_list()) {
    if (!trainer::use_strategy(run, strategy)) continue;
    const optim::ShardingPlan plan = trainer::make_sharding_plan(run, params);
    out.costs.push_back({run.options.sharding.strategy, optim::plan_cost(plan, params),
                         trainer::plan_run_memory(run),
                         rates ? optim::exposed_time(plan, params, *rates) : optim::ExposedTime{}});
  }
  return out;
}

std::string compare_table(const Comparison& comparison) {
  const trainer::RunConfig& config = comparison.config;
  Table work({"strategy", "sent per step", "Newton-Schulz", "balance", "padding"});
  std::vector<std::string> head = {"MiB of rank 0"};
  for (const MemoryCategory category : kCategories)
    head.emplace_back(name_of(category));
  head.emplace_back("allocated");
  Table memory(std::move(head));
  const auto mib = [](std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
  };
  for (const StrategyCost& row : comparison.costs) {
    work.add({row.strategy, size_text(max_sent(row.cost)), flop_text(max_flops(row.cost)),
              fmt::format("{:.3f}", row.cost.balance), grouped(row.cost.padding_elements)});
    std::vector<std::string> cells = {row.strategy};
    for (const MemoryCategory category : kCategories)
      cells.push_back(mib(row.memory.category_bytes(category)));
    cells.push_back(mib(row.memory.rank_bytes(config.world())));
    memory.add(std::move(cells));
  }
  return fmt::format("{} parameters on {} device{}, gradients in {}, weights in {}\n\n",
                     grouped(config.parameters), config.world(), config.world() == 1 ? "" : "s",
                     name_of(config.formats().gradient_wire),
                     name_of(config.formats().weight_wire)) +
         work.text() +
         "  Sent and Newton-Schulz: of the busiest rank. Balance: ideal work over the sum of each "
         "bucket's\n  busiest rank. Padding: in elements.\n\n" +
         memory.text() +
         "  Categories: before tensors that are never in use together share memory. Allocated: the "
         "whole\n  run, after that.\n" +
         times_text(comparison);
}

std::string compare_json(const Comparison& comparison) {
  const trainer::RunConfig& config = comparison.config;
  Json rows = Json::array();
  for (const StrategyCost& row : comparison.costs) {
    Json memory;
    for (const MemoryCategory category : kCategories)
      memory[std::string(name_of(category))] = row.memory.category_bytes(category);
    rows.push_back({{"strategy", row.strategy},
                    {"sent_bytes", max_sent(row.cost)},
                    {"muon_flops", max_flops(row.cost)},
                    {"balance", row.cost.balance},
                    {"padding_elements", row.cost.padding_elements},
                    {"memory_bytes_by_category", memory},
                    {"memory_bytes_per_device", row.memory.rank_bytes(config.world())}});
    if (comparison.rates) rows.back()["predicted"] = prediction_json(row.time);
  }
  const Json out = {
      {"parameters", config.parameters}, {"world", config.world()}, {"strategies", rows}};
  return out.dump(2) + "\n";
}

}  // namespace muo::kit
