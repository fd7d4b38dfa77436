#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/run/run_config.h"
#include "optim/exposed_time.h"
#include "optim/sharding_plan.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {

// What a strategy costs a run.
struct StrategyCost {
  std::string strategy;
  optim::PlanCost cost;
  MemoryPlan memory;        // of rank 0
  optim::ExposedTime time;  // if there are rates
};
// Of every strategy, for the run that `config` is but for its own.
struct Comparison {
  const RunConfig& config;
  std::optional<optim::MachineRates> rates;
  std::vector<StrategyCost> costs;
};
Comparison compare_strategies(const RunConfig& config,
                              const std::optional<optim::MachineRates>& rates = {});

std::string compare_table(const Comparison& comparison);
std::string compare_json(const Comparison& comparison);

}  // namespace muo::app
