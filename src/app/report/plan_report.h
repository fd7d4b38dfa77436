#pragma once

#include <optional>
#include <string>

#include "app/train/run_config.h"
#include "optim/exposed_time.h"
#include "optim/sharding_plan.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory_plan.h"

namespace muo {

// What `muograph plan` says, for people and for programs.
struct PlanReport {
  RunConfig config;
  ShardingPlan sharding;
  MemoryPlan memory;  // of one device
  std::optional<MachineRates> rates = {};
  std::int64_t staging = 0;  // bytes for saves in the background, of one device
};
// What the process of the run will hold, on the host.
std::int64_t process_bytes(const PlanReport& report);
std::string plan_table(const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace muo
