#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo::optim {

// For ReplicaAt::kSharded: what a pass over the model gathers, when, and into which memory. A
// stage is a part of a pass that reads its weights together: the embedding, a layer, the
// head. While compute is at one stage, comm gathers the weights of the next stage, unless
// they are there already.

// Weights that are gathered together: those of one stage from all buckets that are cut by units, or
// one whole bucket.
struct WeightGroup {
  struct Part {
    std::size_t bucket = 0;
    Range block;              // a range of the bucket's full space: see blocks()
    std::int64_t offset = 0;  // offset in the slot, in bytes
  };
  std::vector<Part> parts = {};
  int first = 0, last = 0;   // the stages that read it
  bool in_backward = false;  // also read in the backward pass
  std::int64_t bytes = 0;
  std::size_t slot = 0;
};

inline constexpr int kReplicated = -1;

struct WeightSchedule {
  // Gathers that comm starts when compute enters a stage, as indices of groups.
  struct Visit {
    int stage = 0;
    std::vector<std::size_t> gathers = {};
  };
  std::vector<int> stage_of;  // by parameter; kReplicated: not gathered
  std::vector<WeightGroup> groups;
  std::vector<std::int64_t> slots;  // sizes in bytes; groups of a slot use it in turn
  // Visits of a forward pass, and of a micro-step of training, which has a forward and a backward
  // pass. All slots are empty at first.
  std::vector<Visit> forward, training;

  [[nodiscard]] std::int64_t collectives(std::span<const Visit> visits) const;
  // Bytes that `rank` sends, counted as in Communicator::bytes_sent().
  [[nodiscard]] std::int64_t sent_bytes(std::span<const Visit> visits, const ShardingPlan& plan,
                                        int rank) const;
};

// A pure function. Two groups share a slot only if neither is gathered for the next stage, or read,
// while the other one is: two slots for layers that are gathered one by one (double buffering).
WeightSchedule make_weight_schedule(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo::optim
