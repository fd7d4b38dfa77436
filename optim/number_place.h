#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "optim/sharding_plan.h"

namespace muo {

// The places of numbers in a step, for who looks for one that is not finite (kernels/commit.h):
// first all gradients as ranks hold them after reduction, then all updates; in each the buckets in
// the plan's order. A gradient's place in its bucket is its index in what the rank holds, an
// update's is its element of the full space.
struct PlaceBases {
  std::int64_t gradients = 0;
  std::int64_t updates = 0;
};
PlaceBases place_bases(const ShardingPlan& plan, std::size_t bucket);

struct NumberPlace {
  bool update = false;  // else a gradient
  std::size_t param = 0;
  std::int64_t element = 0;  // of the parameter; of an update only the matrix is sure
};
NumberPlace find_number(const ShardingPlan& plan, int rank, std::int64_t place);

// "the gradient of transformer.h.3.mlp.c_fc.weight[5, 17]" or "the update of lm_head.weight".
std::string describe_number(const NumberPlace& place, std::span<const ParamSpec> params);

}  // namespace muo
