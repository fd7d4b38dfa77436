#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "optim/sharding_plan.h"

namespace muo::optim {

// Every value of a step has an index, by which a rank tells the others of the first that is not
// finite (kernels/commit.h): first all gradients as ranks hold them after reduction, then all
// updates; in each the buckets in the plan's order. A gradient's index counts from its bucket's
// base in what the rank holds, an update's in the full space.
struct ValueIndexBases {
  std::int64_t gradients = 0;
  std::int64_t updates = 0;
};
ValueIndexBases value_index_bases(const ShardingPlan& plan, std::size_t bucket);

struct NonfiniteValue {
  bool update = false;  // else a gradient
  std::size_t param = 0;
  std::int64_t element = 0;  // of the parameter; of an update only the matrix is sure
};
NonfiniteValue locate_value(const ShardingPlan& plan, int rank, std::int64_t index);

// "the gradient of transformer.h.3.mlp.c_fc.weight[5, 17]" or "the update of lm_head.weight".
std::string describe_value(const NonfiniteValue& value, std::span<const ParamSpec> params);

}  // namespace muo::optim
