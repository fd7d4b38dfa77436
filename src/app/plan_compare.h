#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/run_config.h"
#include "optim/sharding_plan.h"
#include "runtime/arena.h"

namespace muo {

// What a strategy costs a run.
struct StrategyCost {
  std::string strategy;
  PlanCost cost;
  MemoryPlan memory;  // of rank 0
};
// Of every strategy, for the run that `config` is but for its own.
std::vector<StrategyCost> compare_strategies(const RunConfig& config);

std::string compare_table(const RunConfig& config, std::span<const StrategyCost> costs);
std::string compare_json(const RunConfig& config, std::span<const StrategyCost> costs);

}  // namespace muo
