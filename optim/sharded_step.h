#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "optim/bucket_update.h"
#include "optim/gathered_weights.h"
#include "optim/gradient_slots.h"
#include "optim/nonfinite_value.h"
#include "optim/sharding_plan.h"
#include "optim/update_clock.h"
#include "runtime/device_group.h"
#include "runtime/memory/arena.h"
#include "runtime/parameter.h"

namespace muo::optim {

// Runs any ShardingPlan on one rank. It owns the tensors of weights, gradients, masters and
// optimizer state (all from the arena), and enqueues reduction, update, commit and publication.
// It enqueues the same calls on every rank, eagerly or during a capture. `plan` and `params`
// must outlive it.
//
// begin() opens a step (OpenStep). Each of its micro-steps is a pass (MicroStep): a forward pass,
// with weight_needed() before each use of a weight, then a backward pass, with gradient_ready() for
// every parameter. Passes between steps, which only read weights, are ForwardPasses.
//
// From Shard::kGradients on, and with more than one rank, each micro-step reduces. A rank's
// part of the sum over ranks, which is added in rank order, is accumulated over micro-steps in
// their order, in fp32.
//
// With ReplicaAt::kSharded, weight_needed() must also be called before each use in the backward
// pass, in the model's order (gathered_weights.h).
//
// With Gather::kPipelined, finish() commits, and begin() publishes what the previous step
// committed. Publishing twice changes nothing, so the first step, and a step after publish(), do
// the same as all others. Synchronisation:
// - Publishing overwrites weights that the last backward pass read, and sends weights that the last
//   commit wrote: in begin(), comm waits for compute, which waited for both in finish().
// - The forward pass reads the weights that arrive: in weight_needed(), compute waits for the
//   gather of the bucket.
// - Commit overwrites weights that peers read from this rank during its gather. It waits
//   for the totals, which comm enqueued later, and a gather is complete only when its
//   inputs may be overwritten.
// - Commit writes to a common replica (ReplicaAt) after the totals: by then, all ranks
//   have completed their backward passes. Publishing a common replica is an empty
//   collective, i.e. a barrier.
// - Between finish() and the next begin(), replicas contain old weights, except for the parts that
//   this rank updates: call publish() before reading them. Masters and state are new.
class ShardedStep {
 public:
  class OpenStep;
  class MicroStep;
  class ForwardPass;

  // `gradients` must be kRun if they are to survive between launches of graphs, e.g. if the
  // micro-steps of an accumulation are several launches. Throws Error for an invalid plan.
  ShardedStep(const RankContext& rank, const ShardingPlan& plan, std::span<const ParamSpec> params,
              Arena& arena, Lifespan gradients = Lifespan::kStep);
  ~ShardedStep() = default;
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  // The replica that passes read, in its logical shape. If it is sharded, it is valid from
  // weight_needed() on.
  [[nodiscard]] Tensor weight(std::size_t param) const;
  [[nodiscard]] bool is_sharded(std::size_t param) const {
    return weights_ && weights_->holds(param);
  }
  [[nodiscard]] bool shards_weights() const { return weights_.has_value(); }
  // Destination of the backward pass, in its logical shape. The first micro-step, or each one that
  // is reduced, overwrites it; the others add to it. The sum over micro-steps and ranks is the
  // gradient of the mean loss: the loss includes the global scale.
  [[nodiscard]] Tensor gradient(std::size_t param) const;
  [[nodiscard]] Tensor scalars() const { return scalars_; }  // StepScalars
  [[nodiscard]] Tensor hyper() const { return hyper_; }      // HyperParameters
  [[nodiscard]] Tensor statistics() const {
    return statistics_;
  }  // LossStatistics, part of the state, like step and updates
  // (kRankIndices + world) fp64. Before finish(), [0] is this rank's loss, written by the model;
  // after finish(), all elements are sums over all ranks (kernels/commit.h).
  [[nodiscard]] Tensor totals() const { return totals_; }
  // (params, 3) fp64, UpdateSquares. After finish(): those of the *previous* step, summed over all
  // ranks; 0 if that step was not committed. The collective of the totals includes them.
  [[nodiscard]] Tensor update_squares() const { return update_squares_; }

  // Zeroes all gradients, on compute, so that every micro-step may accumulate.
  void zero_gradients();

  // Begins a step: computes its scalars on compute. At most one step may be open at a time. A
  // smaller step begins at a later micro-step of the plan and leaves out those before.
  [[nodiscard]] OpenStep begin(std::int64_t first_micro_step = 0);
  // Begins a pass between steps; requires shards_weights(). Its gathers have tags from `first` on.
  [[nodiscard]] ForwardPass begin_forward_pass(Tag first);
  // Whether the gradients of each micro-step are reduced. The backward pass then overwrites
  // gradients, and never adds to them.
  [[nodiscard]] bool reduces_every_micro_step() const { return reduces_every_micro_step_; }

  // Whether finish() leaves replicas for the next begin() to publish: if pipelined, and with
  // more than one rank.
  [[nodiscard]] bool leaves_replicas_behind() const { return !gathered_first_.empty(); }

  // Makes work enqueued from now on advance these clocks. The update's clock covers everything
  // between the caller's mark_phase() on compute before begin() and its mark_phase() on
  // compute after finish().
  void observe(const UpdateClock& clock) { clock_ = clock; }

  // Makes all replicas equal to the masters, after the masters were written from outside (by a
  // checkpoint), or by a step that left replicas behind. Ordered after earlier and before later
  // work on compute.
  void publish();

  // Computes update_squares() of the last step, between steps. Collective; ordered like publish().
  void sum_last_update();

  // This rank's parts of the state: weights under their names (masters), ".momentum" and
  // ".variance" for Muon, ".adam_m" and ".adam_v" for AdamW.
  [[nodiscard]] std::vector<StateEntry> state() const;

 private:
  // Where a parameter is.
  struct Location {
    std::size_t bucket = 0;
    const Unit* first = nullptr;
  };
  struct BucketState {
    std::unique_ptr<BucketTensors> tensors;
    std::unique_ptr<BucketUpdate> update;
    ValueIndexBases index_bases;
    std::size_t parameters = 0;
    std::size_t missing = 0;  // gradients missing in this step, or micro-step
    bool open = false;        // the backward pass writes it, or its reduction is not enqueued yet
    bool gathering = false;   // published by begin(); compute has not waited for it yet
    std::unique_ptr<Event> gathered, ready, reduced, prepared, exchanged, computed, committed;
  };

  // This rank's entry of the totals: the index of the first value that is not finite
  // (kernels/commit.h).
  [[nodiscard]] Tensor first_nonfinite() const;
  void allocate_squares(Arena& arena);
  void begin_micro_step(std::int64_t index);
  void weight_needed(std::size_t param);
  [[nodiscard]] bool is_gathering(std::size_t param) const;
  void gradient_needed(std::size_t param);
  void gradient_ready(std::size_t param);
  void join();
  void finish(const std::function<void(Stream&)>& before_counting);
  void expect_gradients();
  void advance();
  void reduce(BucketState& bucket, Tag tag);
  void sum_update(Stream& stream);
  [[nodiscard]] bool is_last_reduction() const { return micro_step_ + 1 == plan_.reductions(); }
  void exchange(std::size_t index);
  void return_updates(BucketState& bucket);
  void compute_exchanged();

  const bool reduces_every_micro_step_;
  std::vector<Location> locations_;  // by parameter
  std::span<const ParamSpec> params_;
  RankContext rank_;
  const ShardingPlan& plan_;
  Tensor scalars_;
  Tensor hyper_;
  Tensor statistics_;
  Tensor all_totals_;  // totals_ and update_squares_, summed by one collective
  Tensor totals_, update_squares_;
  Tensor squares_;  // squares of parts (kernels/update_squares.h); absent if other ranks count
  std::vector<UpdatePiece> pieces_;
  bool summed_ = false;  // update_squares() has been summed in this step
  UpdateClock clock_;
  std::vector<BucketState> buckets_;
  std::vector<std::size_t> gathered_first_;   // buckets that begin publishes, in order
  std::optional<GradientTensors> gradients_;  // if every micro-step is reduced
  std::optional<GatheredWeights> weights_;    // if weights are sharded
  std::vector<const BucketState*>
      in_slot_;                         // by slot: its last bucket since the last join, or null
  std::vector<BucketCall> calls_;       // for the last micro-step
  std::vector<BucketCall> reductions_;  // for other micro-steps
  std::size_t next_call_ = 0;
  std::int64_t first_micro_step_ = 0, micro_step_ = 0;
  std::vector<bool> needed_;              // weights needed in this step
  std::vector<bool> announced_;           // gradients announced in this step
  std::ptrdiff_t exchanged_bucket_ = -1;  // exchanged, but not computed yet; -1: none
  std::unique_ptr<Event> begun_, loss_, updated_, totalled_, agreed_, all_committed_, published_,
      joined_;
};

// A step from begin() to finish(), which may be in several graphs. The ShardedStep must outlive it.
class ShardedStep::OpenStep {
 public:
  // Begins micro-step `index` of the plan, after the previous one, if any, is complete.
  [[nodiscard]] MicroStep micro_step(std::int64_t index);
  // Begins the last micro-step, whose gradients are reduced, if the others make no calls.
  [[nodiscard]] MicroStep last_micro_step();
  // Orders all reductions so far before later work on compute; called at the end of a graph.
  void join() { step_->join(); }
  // Joins all streams into compute, after the totals are agreed and the update is committed or not.
  // Later work on compute sees the new weights, except those that the next begin() publishes (see
  // leaves_replicas_behind()). `before_counting` (metrics) runs between the agreement and the
  // increment of `step`. Throws Error if a gradient was not ready.
  void finish(const std::function<void(Stream&)>& before_counting = {}) {
    step_->finish(before_counting);
  }

 private:
  friend class ShardedStep;
  explicit OpenStep(ShardedStep& step) : step_(&step) {}
  ShardedStep* step_;
};

// Throws Error for calls that are too early or repeated.
class ShardedStep::MicroStep {
 public:
  // Call this before enqueuing work on compute that reads this weight; that work then sees the
  // gathered weight.
  void weight_needed(std::size_t param) { step_->weight_needed(param); }
  // Whether weight_needed() may make compute wait. It waits once per bucket that is gathered in
  // begin(), and once per gather of sharded weights.
  [[nodiscard]] bool is_gathering(std::size_t param) const { return step_->is_gathering(param); }
  // Whether the gradients of this micro-step are reduced; if so, the backward pass must make
  // the next two calls.
  [[nodiscard]] bool reduces() const { return reduces_; }
  // Call this before enqueuing work on compute that writes this gradient, if every micro-step
  // reduces; that work then waits until the slot's previous gradient is reduced.
  void gradient_needed(std::size_t param) { step_->gradient_needed(param); }
  // Call this on compute after the last work that writes this gradient. When a bucket is complete,
  // comm reduces it and update computes the units that this rank owns, concurrently with compute.
  void gradient_ready(std::size_t param) { step_->gradient_ready(param); }

 private:
  friend class OpenStep;
  MicroStep(ShardedStep& step, bool reduces) : step_(&step), reduces_(reduces) {}
  ShardedStep* step_;
  bool reduces_;
};

class ShardedStep::ForwardPass {
 public:
  void weight_needed(std::size_t param) { step_->weight_needed(param); }
  void end() { step_->weights_->join(); }  // joins the gathers into compute

 private:
  friend class ShardedStep;
  explicit ForwardPass(ShardedStep& step) : step_(&step) {}
  ShardedStep* step_;
};

}  // namespace muo::optim
