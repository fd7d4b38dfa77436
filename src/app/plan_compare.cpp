#include "app/plan_compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "app/run_memory.h"
#include "app/terminal.h"
#include "app/text_table.h"

namespace muo {
namespace {

using Json = nlohmann::ordered_json;

// Memory that depends on the strategy.
constexpr std::array kCategories = {MemoryCategory::kWeights,  MemoryCategory::kGradients,
                                    MemoryCategory::kMomentum, MemoryCategory::kAdamState,
                                    MemoryCategory::kMasters,  MemoryCategory::kUpdate,
                                    MemoryCategory::kStaging};

std::int64_t most_sent(const PlanCost& cost) { return *std::ranges::max_element(cost.sent_bytes); }
double most_flops(const PlanCost& cost) { return *std::ranges::max_element(cost.muon_flops); }

}  // namespace

std::vector<StrategyCost> compare_strategies(const RunConfig& config) {
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  std::vector<StrategyCost> out;
  RunConfig run = config;
  for (const std::string_view strategy : strategy_names()) {
    run.options.strategy = strategy;
    const ShardingPlan plan = make_sharding_plan(run, params);
    out.push_back({run.options.strategy, plan_cost(plan, params), plan_run_memory(run)});
  }
  return out;
}

std::string compare_table(const RunConfig& config, std::span<const StrategyCost> costs) {
  Table work({"strategy", "sent per step", "Newton-Schulz", "balance", "padding"});
  std::vector<std::string> head = {"MiB of rank 0"};
  for (const MemoryCategory category : kCategories)
    head.emplace_back(name_of(category));
  head.emplace_back("allocated");
  Table memory(std::move(head));
  const auto mib = [](std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
  };
  for (const StrategyCost& row : costs) {
    work.add({row.strategy, size_text(most_sent(row.cost)),
              count_text(most_flops(row.cost)) + "FLOP", fmt::format("{:.3f}", row.cost.balance),
              grouped(row.cost.padding_elements)});
    std::vector<std::string> cells = {row.strategy};
    for (const MemoryCategory category : kCategories)
      cells.push_back(mib(row.memory.category_bytes(category)));
    cells.push_back(mib(row.memory.bytes));
    memory.add(std::move(cells));
  }
  return fmt::format("{} parameters on {} device{}, gradients in {}, weights in {}\n\n",
                     grouped(config.parameters), config.world, config.world == 1 ? "" : "s",
                     name_of(config.formats.gradient_wire), name_of(config.formats.weight_wire)) +
         work.text() +
         "  Sent and Newton-Schulz: of the busiest rank. Balance: ideal over the sum of every "
         "bucket's\n  busiest rank. Padding: elements.\n\n" +
         memory.text() +
         "  Categories before tensors that are never in use together share memory; allocated: all "
         "of\n  the run after it.\n";
}

std::string compare_json(const RunConfig& config, std::span<const StrategyCost> costs) {
  Json rows = Json::array();
  for (const StrategyCost& row : costs) {
    Json memory;
    for (const MemoryCategory category : kCategories)
      memory[std::string(name_of(category))] = row.memory.category_bytes(category);
    rows.push_back({{"strategy", row.strategy},
                    {"sent_bytes", most_sent(row.cost)},
                    {"muon_flops", most_flops(row.cost)},
                    {"balance", row.cost.balance},
                    {"padding_elements", row.cost.padding_elements},
                    {"memory_bytes_by_category", memory},
                    {"memory_bytes_per_device", row.memory.bytes}});
  }
  const Json out = {
      {"parameters", config.parameters}, {"world", config.world}, {"strategies", rows}};
  return out.dump(2) + "\n";
}

}  // namespace muo
