#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "optim/sharding_plan.h"

namespace muo::optim {

// A machine and a model, as far as the time of an update depends on them.
struct MachineRates {
  double link_bytes_per_s = 0;  // that a rank sends while a collective runs
  // Of boxes of so many ranks, that a box sends to the others, all its ranks together; 0: one box.
  int ranks_per_box = 0;
  double box_bytes_per_s = std::numeric_limits<double>::infinity();
  double link_latency_s = 0;    // of a collective, whatever its size
  double gemm_flops_per_s = 0;  // of a device in Newton-Schulz
  double memory_bytes_per_s = std::numeric_limits<double>::infinity();  // of a device in commit
  double step_s = 0;  // forward and backward of all micro-steps; 0: the update alone
  std::int64_t accumulation = 1;
};

struct ExposedTime {
  double communication_s = 0;  // all collectives of a step, one after the other
  double newton_schulz_s = 0;  // of the busiest rank
  double update_s = 0;         // what the update adds to step_s
  // What of it a link that takes no time would save; and what matrix products that take none would.
  double communication_exposed_s = 0, newton_schulz_exposed_s = 0;
  double commit_s = 0;   // of update_s: the busiest rank's commit, which nothing hides
  double box_bytes = 0;  // that a box sends to the others in a step
};

// The critical path of a step through ShardedStep's three streams, in its order of calls:
// - compute: a forward, a third of the micro-step's time, and a backward, two thirds. Matrices and
//   head take time in proportion to their elements, all other parameters none. A bucket's gradient
//   is there when backward has passed the last parameter of it. It waits for weights that are
//   gathered, at the head of the step or, sharded, stage by stage.
// - comm: one collective at a time, in the order of the plan's tags. It begins when every rank has
//   what it sends, takes link_latency_s for each call and the busiest rank's bytes over the link's
//   rate, and ends for all ranks at once. Owners of a bucket gather at the same time, and scatter.
//   Between boxes NCCL's rings pass each box once, whatever ranks it has: what a rank sends a box
//   sends, too. What ranks send to single others leaves the box in proportion to the others. The
//   slower of the two rates counts.
// - update, of every rank: Newton-Schulz of its matrices of a bucket, its FLOPs over the rate.
// Then all agree and commit, which memory bounds (PlanCost::commit_bytes), and Gather::kSimple
// publishes. Gather::kPipelined publishes at the head of a step: what forward waits for there is
// what it adds.
// Left out: other work by elements (Muon's input and scaling), and that collectives and products
// slow each other down.
ExposedTime exposed_time(const ShardingPlan& plan, std::span<const ParamSpec> params,
                         const MachineRates& rates);

}  // namespace muo::optim
