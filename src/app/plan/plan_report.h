#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

#include "app/run/device_rates.h"
#include "app/run/run_memory.h"
#include "optim/exposed_time.h"

namespace muo::app {

// What `muograph plan` says, for people and for programs.
struct PlanReport {
  PlannedRun run = {};
  std::optional<optim::MachineRates> rates = {};
  std::int64_t fixed = 0;  // plan_fixed_memory()
  ExpectedTime time = {};  // of the whole run
};
// Bytes that the process of the run will hold, on the host.
std::int64_t process_bytes(const PlanReport& report);
std::string plan_table(const PlanReport& report);
nlohmann::ordered_json plan_object(const PlanReport& report);
std::string plan_json(const PlanReport& report);  // its text

// What `options` say of the machine that would run `config`; nothing if they say nothing.
std::optional<optim::MachineRates> machine_rates(const RunConfig& config,
                                                 const PredictionOptions& options);

std::string rates_text(const optim::MachineRates& rates);
nlohmann::ordered_json prediction_json(const optim::ExposedTime& time);

}  // namespace muo::app
