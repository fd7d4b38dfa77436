#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "optim/sharding_plan.h"

namespace muo::optim {

// Rates of a machine and a model that determine the time of an update.
struct MachineRates {
  double link_bytes_per_s = 0;  // sent by a rank while a collective runs
  // Number of ranks per box (0: there is one box), and bytes per second that all ranks of a box
  // together send to other boxes.
  int ranks_per_box = 0;
  double box_bytes_per_s = std::numeric_limits<double>::infinity();
  double link_latency_s = 0;    // per collective, independent of its size
  double gemm_flops_per_s = 0;  // rate of a device in Newton-Schulz
  double memory_bytes_per_s = std::numeric_limits<double>::infinity();  // of a device, in commit
  double step_s = 0;  // forward and backward of all micro-steps; 0: only the update
  std::int64_t accumulation = 1;
  bool loop = false;  // of micro-steps, before which all weights arrive
};

struct ExposedTime {
  double communication_s = 0;  // sum over all collectives of a step
  double newton_schulz_s = 0;  // time of the busiest rank
  double update_s = 0;         // added to step_s by the update
  // The parts of update_s that would be saved if links, or matrix products, took no time.
  double communication_exposed_s = 0, newton_schulz_exposed_s = 0;
  double commit_s = 0;   // part of update_s: commit on the busiest rank, never overlapped
  double box_bytes = 0;  // sent by a box to the others in a step
};

// The critical path of a step through ShardedStep's three streams, in the order of its calls:
// - compute: a forward pass takes a third of the time of a micro-step, a backward pass two
//   thirds. Matrices and head take time in proportion to their elements, all other parameters
//   none. A bucket's gradient is complete when the backward pass has passed the bucket's last
//   parameter. Compute waits for gathered weights, at the start of the step or, if weights are
//   sharded, stage by stage.
// - comm: one collective at a time, in the order of the plan's tags. It starts when every rank has
//   its input, takes link_latency_s per call plus the bytes of the busiest rank divided by the
//   link's rate, and ends on all ranks at once. All owners of a bucket gather at the same time, and
//   all scatter at the same time. Between boxes, NCCL's rings pass each box once, however many
//   ranks it has, so a box sends as much as a rank. Of the data sent to individual ranks, the part
//   for ranks of other boxes leaves the box. The slower of the two transfers, by rank and by box,
//   determines the time.
// - update, on every rank: Newton-Schulz for the rank's matrices of a bucket takes their FLOPs
//   divided by the rate. Then all ranks agree and commit, which is memory-bound
//   (PlanCost::commit_bytes), and Gather::kSimple publishes. Gather::kPipelined publishes at the
//   start of a step, and adds the time for which the forward pass waits.
// Not modelled: other element-wise work (Muon's input and scaling), and the mutual slowdown of
// collectives and products.
ExposedTime exposed_time(const ShardingPlan& plan, std::span<const ParamSpec> params,
                         const MachineRates& rates);

}  // namespace muo::optim
