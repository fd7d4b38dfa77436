#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

#include "app/train/run_config.h"
#include "optim/exposed_time.h"

namespace muo {

// What `options` say of the machine that would run `config`; nothing if they say nothing.
std::optional<MachineRates> machine_rates(const RunConfig& config,
                                          const PredictionOptions& options);

std::string rates_text(const MachineRates& rates);
std::string prediction_text(const ExposedTime& time, const MachineRates& rates);
nlohmann::ordered_json prediction_json(const ExposedTime& time);

}  // namespace muo
