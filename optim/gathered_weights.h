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

// ReplicaAt::kSharded: one rank's memory for gathered weights, and the gathers of its passes, by
// WeightSchedule, enqueued on comm while compute goes on. The same calls on every rank.
//
// Why nobody reads or writes too early: comm waits, before it gathers, for all that compute was
// given before it entered this stage, and with it for the last use of what is overwritten; compute
// waits for a gather before the first use. What a gather reads is written by commit, which waits
// for totals that comm enqueues after it.
class GatheredWeights {
 public:
  // `plan` and `params` must outlive it.
  GatheredWeights(const RankContext& rank, const ShardingPlan& plan,
                  std::span<const ParamSpec> params, Arena& arena);

  // Whose shards are gathered, by bucket; before the first pass.
  void gather_from(std::vector<const BucketTensors*> buckets) { buckets_ = std::move(buckets); }

  [[nodiscard]] bool holds(std::size_t param) const {
    return schedule_.stage_of[param] != kReplicated;
  }
  // Of a parameter that it holds; logical shape. It is there from needed() until the pass enters
  // the next stage but one.
  [[nodiscard]] Tensor weight(std::size_t param) const;

  // A pass begins, on compute, with nothing gathered. Its gathers take tags from `first_tag` on, as
  // many as tags().
  void begin(WeightPass pass, Tag first_tag);
  [[nodiscard]] Tag tags(WeightPass pass) const;
  // Before work on compute that reads this weight is enqueued. Throws Error if the pass is beyond
  // the stage that reads it.
  void needed(std::size_t param);
  // Whether that may make compute wait.
  [[nodiscard]] bool may_wait(std::size_t param) const;
  // What was gathered is there before later work on compute: for a graph's end.
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
  Tensor wire_;                        // one part as it travels; absent where it does as it is read
  std::vector<const BucketTensors*> buckets_;
  WeightPass pass_ = WeightPass::kForward;
  std::size_t visit_ = 0;  // the next one
  Tag next_tag_ = 0;
  std::vector<bool> arriving_;  // by group: gathered, and compute has not waited
  std::vector<std::unique_ptr<Event>> gathered_;
  std::unique_ptr<Event> entered_, joined_;
};

}  // namespace muo::optim
