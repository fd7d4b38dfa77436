#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo {

// Where whole gradients lie under Accumulate::kSharded: each bucket in a room, whose occupants take
// turns. One moves in when the one before is reduced, which backward waits for.
struct GradientRooms {
  std::vector<std::size_t> of_bucket;  // by bucket index
  std::vector<std::int64_t> elements;  // of each room: of its largest occupant
};

// Two rooms, so that a bucket is reduced while backward fills the next; more only where backward
// writes more buckets at a time, as a strategy of buckets by shape makes it. An all-reduced bucket
// has its own: nobody holds less of it, and its scalars are written all the way.
GradientRooms gradient_rooms(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo
