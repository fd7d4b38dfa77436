#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "optim/bucket_tensors.h"
#include "optim/weight_schedule.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"

namespace muo::optim {

enum class WeightPass : std::uint8_t { kForward, kTraining };

// For ReplicaAt::kSharded: one rank's memory for gathered weights, and the gathers of its
// passes, according to WeightSchedule, enqueued on comm concurrently with compute. All ranks
// make the same calls.
//
// Synchronisation: before a gather, comm waits for all work that compute had enqueued when it
// entered this stage, and hence for the last use of the overwritten slot. Compute waits for a
// gather before its first use. The shards that a gather reads are written by commit, which waits
// for totals that comm enqueues after the gather.
class GatheredWeights {
 public:
  // `plan` and `params` must outlive this object.
  GatheredWeights(const RankContext& rank, const ShardingPlan& plan,
                  std::span<const ParamSpec> params, Arena& arena);

  // Sets the buckets whose shards are gathered. Call it before the first pass.
  void gather_from(std::vector<const BucketTensors*> buckets) { buckets_ = std::move(buckets); }

  [[nodiscard]] bool holds(std::size_t param) const {
    return schedule_.stage_of[param] != kReplicated;
  }
  // A gathered parameter, in its logical shape. It is valid from needed() until the pass enters the
  // next stage but one.
  [[nodiscard]] Tensor weight(std::size_t param) const;

  // Begins a pass, on compute, with nothing gathered. The gathers of the pass use tags(pass) tags,
  // beginning with `first_tag`.
  void begin(WeightPass pass, Tag first_tag);
  [[nodiscard]] Tag tags(WeightPass pass) const;
  // Call this before enqueuing work on compute that reads this weight. Throws Error if the pass is
  // past the stage that reads it.
  void needed(std::size_t param);
  // Whether needed() may make compute wait.
  [[nodiscard]] bool may_wait(std::size_t param) const;
  // Makes later work on compute wait for all gathers; called at the end of a graph.
  void join();

 private:
  [[nodiscard]] const std::vector<WeightSchedule::Visit>& visits(WeightPass pass) const {
    return pass == WeightPass::kForward ? schedule_.forward : schedule_.training;
  }
  [[nodiscard]] Tensor memory_of(const WeightGroup& group, const WeightGroup::Part& part) const;
  void enter(const WeightSchedule::Visit& visit);

  RankContext rank_;
  const ShardingPlan& plan_;
  std::span<const ParamSpec> params_;
  WeightSchedule schedule_;
  std::vector<std::size_t> group_of_;  // by parameter
  std::vector<Tensor> slots_;          // bytes
  Tensor wire_;  // one part in the wire's dtype; absent if the replica has that dtype
  std::vector<const BucketTensors*> buckets_;
  WeightPass pass_ = WeightPass::kForward;
  std::size_t visit_ = 0;  // index of the next visit
  Tag next_tag_ = 0;
  std::vector<bool> arriving_;  // by group: enqueued, but compute has not waited for it
  std::vector<std::unique_ptr<Event>> gathered_;
  std::unique_ptr<Event> entered_, joined_;
};

}  // namespace muo::optim
