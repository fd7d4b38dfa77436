#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/exposed_time.h"
#include "optim/sharding_plan.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/run/run_config.h"

namespace muo::kit {

// The cost of a run with one strategy.
struct StrategyCost {
  std::string strategy;
  optim::PlanCost cost;
  MemoryPlan memory;        // of rank 0
  optim::ExposedTime time;  // set if there are rates
};
// The costs of every strategy that the run supports, with `config` otherwise unchanged.
struct Comparison {
  const trainer::RunConfig& config;
  std::optional<optim::MachineRates> rates;
  std::vector<StrategyCost> costs;
};
Comparison compare_strategies(const trainer::RunConfig& config,
                              const std::optional<optim::MachineRates>& rates = {});

std::string compare_table(const Comparison& comparison);
std::string compare_json(const Comparison& comparison);

}  // namespace muo::kit
