#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "optim/sharding_plan.h"

namespace muo::optim {

// Every value of a step has an index, by which a rank reports the first value that is not finite
// (kernels/commit.h). All gradients come first, as ranks hold them after reduction, then all
// updates; both are in the plan's order of buckets. The index of a gradient is the base of its
// bucket plus its position in the rank's part; the index of an update is the base plus the position
// in the full space.
struct ValueIndexBases {
  std::int64_t gradients = 0;
  std::int64_t updates = 0;
};
ValueIndexBases value_index_bases(const ShardingPlan& plan, std::size_t bucket);

struct NonfiniteValue {
  bool update = false;  // true: of an update; false: of a gradient
  std::size_t param = 0;
  std::int64_t element = 0;  // index in the parameter; for an update, only the matrix is exact
};
NonfiniteValue locate_value(const ShardingPlan& plan, int rank, std::int64_t index);

// "the gradient of transformer.h.3.mlp.c_fc.weight[5, 17]" or "the update of lm_head.weight".
std::string describe_value(const NonfiniteValue& value, std::span<const ParamSpec> params);

}  // namespace muo::optim
