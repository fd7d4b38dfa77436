#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kit/sweep/trial.h"

namespace muo::kit {

// The number of steps of each trial in plan_of().
constexpr std::int64_t kSteps = 270;

// Trials that train nothing: `per_point` seeds at each point, alternating between the given number
// of groups.
inline SweepPlan plan_of(std::size_t trials, std::size_t per_point, std::vector<std::int64_t> rungs,
                         std::size_t groups = 1) {
  SweepPlan plan;
  plan.rungs = std::move(rungs);
  plan.groups.resize(groups);
  for (std::size_t i = 0; i < trials; ++i) {
    Trial& trial = plan.trials.emplace_back();
    trial.config.emplace();
    trial.config->hyper.iterations = kSteps;
    trial.group = i / per_point % groups;
    if (i % per_point == 0) plan.points.emplace_back();
    plan.points.back().push_back(i);
  }
  return plan;
}

}  // namespace muo::kit
