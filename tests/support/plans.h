#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/sharding_plan.h"

// Plans that no strategy of the program makes, to test the executor with other tables.
namespace muo::test {

// Matrices in buckets of `per_bucket`, reduce-scattered by elements, so that most matrices cross
// segments. Nesterov inputs are gathered on all ranks, and each rank keeps its slice of the update.
optim::ShardingPlan plan_all_gather_inputs(std::span<const ParamSpec> params, int world,
                                           int per_bucket);
// The same, but inputs are gathered to an owner, which scatters the update.
optim::ShardingPlan plan_gather_to_owner(std::span<const ParamSpec> params, int world,
                                         int per_bucket);
// Whole matrices, assigned round-robin to segments of different lengths.
optim::ShardingPlan plan_owned_unequal(std::span<const ParamSpec> params, int world,
                                       optim::Reduction reduction);

// Sets `use` and `ready` as for a model that reads its parameters in this order.
void number_in_model_order(std::vector<ParamSpec>& params);

// Plans of every strategy, and the plans above.
std::vector<optim::ShardingPlan> all_plans(const std::vector<ParamSpec>& params, int world);

// Bytes that the collective of a step's totals sums: those of kernels/commit.h, and UpdateSquares
// of each parameter.
std::int64_t totals_bytes(int world, std::span<const ParamSpec> params);

// Returns the plan with Gather::kPipelined.
optim::ShardingPlan pipelined(optim::ShardingPlan plan);

}  // namespace muo::test
