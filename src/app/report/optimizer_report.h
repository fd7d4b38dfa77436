#pragma once

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>

#include "app/report/optimizer_times.h"

namespace muo {

// A line of `muograph bench optimizer`.
struct OptimizerRow {
  std::string strategy;
  OptimizerTimes times;
};

std::string optimizer_table(const RunConfig& config, std::span<const OptimizerRow> rows);
nlohmann::ordered_json optimizer_json(const RunConfig& config, std::span<const OptimizerRow> rows);

}  // namespace muo
