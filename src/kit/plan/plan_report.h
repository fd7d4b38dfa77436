#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

#include "optim/exposed_time.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/run_memory.h"

namespace muo::kit {

// The result of `muograph plan`.
struct PlanReport {
  trainer::PlannedRun run = {};
  std::optional<optim::MachineRates> rates = {};
  std::int64_t fixed = 0;           // plan_fixed_memory()
  trainer::ExpectedTime time = {};  // for the whole run
};
// Returns the bytes of host memory of the training process.
std::int64_t process_bytes(const PlanReport& report);
std::string plan_table(const PlanReport& report);
nlohmann::ordered_json plan_object(const PlanReport& report);
std::string plan_json(const PlanReport& report);  // text of plan_object()

// Returns the rates that `options` give for the machine on which `config` would run; empty if they
// do not contain link_gbps and gemm_tflops.
std::optional<optim::MachineRates> machine_rates(const trainer::RunConfig& config,
                                                 const trainer::PredictionOptions& options);

std::string rates_text(const optim::MachineRates& rates);
nlohmann::ordered_json prediction_json(const optim::ExposedTime& time);

}  // namespace muo::kit
