#pragma once

#include <span>

#include "optim/sharding_plan.h"

namespace muo::optim {

// Checks the rules of docs/spec/plan.md, "Valid plans": every element of every parameter is updated
// exactly once, units do not overlap, parameters are contiguous, segments cover units, and tags are
// unique and ordered. Throws Error.
void check_sharding_plan(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo::optim
