#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"

namespace muo::optim {

// ReplicaAt::kSharded: what a pass over the model gathers, when, and into which memory. A stage of
// a pass is what reads its weights together: the embedding, a layer, the head. While compute is at
// one stage, comm gathers what the next one reads and is not there.

// What is gathered together: of the buckets that are cut by units, all that one stage reads; else
// one bucket.
struct WeightGroup {
  struct Part {
    std::size_t bucket = 0;
    Range block;              // of its full space: see blocks()
    std::int64_t offset = 0;  // in the slot, bytes
  };
  std::vector<Part> parts = {};
  int first = 0, last = 0;   // the stages that read it
  bool in_backward = false;  // or forward alone
  std::int64_t bytes = 0;
  std::size_t slot = 0;
};

inline constexpr int kReplicated = -1;

struct WeightSchedule {
  // What comm gathers when compute enters a stage, as indices of groups.
  struct Visit {
    int stage = 0;
    std::vector<std::size_t> gathers = {};
  };
  std::vector<int> stage_of;  // by parameter; kReplicated: it is not gathered
  std::vector<WeightGroup> groups;
  std::vector<std::int64_t> slots;  // bytes. The groups of a slot take turns in it
  // A pass forward; and a micro-step of training, forward and back. Nothing is there at first.
  std::vector<Visit> forward, training;

  [[nodiscard]] std::int64_t collectives(std::span<const Visit> visits) const;
  // What `rank` sends, as Communicator::bytes_sent() counts it.
  [[nodiscard]] std::int64_t sent_bytes(std::span<const Visit> visits, const ShardingPlan& plan,
                                        int rank) const;
};

// Pure. Two groups share a slot only where the one is never read while the other is gathered for
// the next stage or read: two slots for layers that are gathered one by one (double buffering).
WeightSchedule make_weight_schedule(const ShardingPlan& plan, std::span<const ParamSpec> params);

}  // namespace muo::optim
