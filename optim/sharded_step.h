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

// Runs any ShardingPlan on one rank: owns the tensors of weights, gradients, masters and optimizer
// state (all from the arena), and enqueues reduction, update, commit and publication. It enqueues
// the same calls on every rank, eagerly or during a capture. The plan and params must outlive it.
//
// begin() opens a step (OpenStep). Each of its micro-steps is a pass (MicroStep): forward, with
// weight_needed before each use of a weight, then backward, with gradient_ready for every
// parameter. Passes between steps, which only read weights, are ForwardPasses.
//
// From Shard::kGradients, on more than one rank: each micro-step reduces. A rank's part of the sum
// over ranks, which is in rank order, is accumulated over micro-steps in their order, in fp32.
//
// With ReplicaAt::kSharded: weight_needed also before each use in backward, in the model's order
// (gathered_weights.h).
//
// With Gather::kPipelined: finish commits, and begin publishes what the previous step committed.
// Publishing twice changes nothing, so the first step, and one after publish(), do the same as all
// others. Synchronisation:
// - Publishing overwrites weights that the last backward read, and sends weights that the last
// commit wrote: in begin, comm waits for compute, which in finish waited for both.
// - Forward reads the weights that arrive: in weight_needed, compute waits for the bucket's gather.
// - Commit overwrites weights that peers read from this rank during its gather: it waits for the
// totals, which comm enqueued later, and a gather is complete only when its inputs may be
// overwritten.
// - Commit writes to a common replica (ReplicaAt) after the totals: by then all ranks have
// completed their backward passes. Publishing it is an empty collective, that is, a barrier.
// - Between finish and the next begin replicas contain old weights, except for the parts that this
// rank updates: call publish() before reading them. Masters and state are new.
class ShardedStep {
 public:
  class OpenStep;
  class MicroStep;
  class ForwardPass;

  // `gradients`: kRun if they must survive between launches of graphs, as when the micro-steps of
  // an accumulation are several launches. Throws Error for an invalid plan.
  ShardedStep(const RankContext& rank, const ShardingPlan& plan, std::span<const ParamSpec> params,
              Arena& arena, Lifespan gradients = Lifespan::kStep);
  ~ShardedStep() = default;
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  // The replica that forward reads, in its logical shape. If sharded, valid from weight_needed on.
  [[nodiscard]] Tensor weight(std::size_t param) const;
  [[nodiscard]] bool is_sharded(std::size_t param) const {
    return weights_ && weights_->holds(param);
  }
  [[nodiscard]] bool shards_weights() const { return weights_.has_value(); }
  // Destination of backward, in its logical shape: written by the first micro-step, or by each that
  // is reduced; accumulated by others. The sum over micro-steps and ranks is the gradient of the
  // mean loss: the loss includes the global scale.
  [[nodiscard]] Tensor gradient(std::size_t param) const;
  [[nodiscard]] Tensor scalars() const { return scalars_; }  // StepScalars
  [[nodiscard]] Tensor hyper() const { return hyper_; }      // HyperParameters
  [[nodiscard]] Tensor statistics() const {
    return statistics_;
  }  // LossStatistics, part of the state, like step and updates
  // (kRankIndices + world) fp64. Before finish: [0] is this rank's loss, written by the model.
  // After it: sums over all ranks (kernels/commit.h).
  [[nodiscard]] Tensor totals() const { return totals_; }
  // (params, 3) fp64, UpdateSquares. After finish: those of the *previous* step, summed over all
  // ranks; 0 if that was not committed. They are part of the totals' collective.
  [[nodiscard]] Tensor update_squares() const { return update_squares_; }

  // Begins a step: computes its scalars on compute. At most one step is open at a time.
  [[nodiscard]] OpenStep begin();
  // A pass between steps; requires shards_weights(). Its gathers have tags from `first` on.
  [[nodiscard]] ForwardPass begin_forward_pass(Tag first);
  // True if each micro-step's gradients are reduced: backward then overwrites them, and never adds.
  [[nodiscard]] bool reduces_every_micro_step() const { return reduces_every_micro_step_; }

  // True if finish leaves replicas for the next begin to publish: pipelined, and more than one
  // rank.
  [[nodiscard]] bool leaves_replicas_behind() const { return !gathered_first_.empty(); }

  // Work enqueued from now on reads these clocks. The update's clock covers everything from the
  // caller's mark_phase on compute before begin, to one on compute after finish.
  void observe(const UpdateClock& clock) { clock_ = clock; }

  // Makes all replicas equal to the masters, after these were written from outside (by a
  // checkpoint), or by a step that left replicas behind. Ordered after earlier and before later
  // work on compute.
  void publish();

  // Between steps: computes update_squares() of the last one. Collective; ordered like publish().
  void sum_last_update();

  // This rank's parts: weights under their names (masters), ".momentum" and ".variance" for Muon,
  // ".adam_m" and ".adam_v" for AdamW.
  [[nodiscard]] std::vector<StateEntry> state() const;

 private:
  // Place of a parameter.
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
    bool open = false;        // being written by backward, or reduction not enqueued yet
    bool gathering = false;   // published by begin, and compute has not waited yet
    std::unique_ptr<Event> gathered, ready, reduced, prepared, exchanged, computed, committed;
  };

  // This rank's entry: the index of the first value that is not finite (kernels/commit.h).
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
  Tensor squares_;  // of parts (kernels/update_squares.h); absent if other ranks count
  std::vector<UpdatePiece> pieces_;
  bool summed_ = false;  // in this step
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
  std::int64_t micro_step_ = 0;
  std::vector<bool> needed_;              // weights needed in this step
  std::vector<bool> announced_;           // gradients announced in this step
  std::ptrdiff_t exchanged_bucket_ = -1;  // exchanged, but not computed yet; -1: none
  std::unique_ptr<Event> begun_, loss_, updated_, totalled_, agreed_, all_committed_, published_,
      joined_;
};

// A step from begin() to finish(), which may be in several graphs. The ShardedStep must outlive it.
class ShardedStep::OpenStep {
 public:
  // Begins micro-step `index` of the plan, from 0, after the previous one is complete.
  [[nodiscard]] MicroStep micro_step(std::int64_t index);
  // Orders reductions so far before later work on compute: for the end of a graph.
  void join() { step_->join(); }
  // Joins all streams into compute: totals agreed, and commit or nothing. Later work on compute
  // sees the new weights, except those that the next begin publishes (see
  // leaves_replicas_behind()). `before_counting` (metrics) runs between the agreement and the
  // increment of step. Throws Error if a gradient was not ready.
  void finish(const std::function<void(Stream&)>& before_counting = {}) {
    step_->finish(before_counting);
  }

 private:
  friend class ShardedStep;
  explicit OpenStep(ShardedStep& step) : step_(&step) {}
  ShardedStep* step_;
};

// Calls that are too early or repeated throw Error.
class ShardedStep::MicroStep {
 public:
  // Call it before enqueuing work on compute that reads this weight: that work then sees the
  // gathered weight.
  void weight_needed(std::size_t param) { step_->weight_needed(param); }
  // True if weight_needed() may make compute wait. It waits once per bucket that is gathered in
  // begin, and once per gather of sharded weights.
  [[nodiscard]] bool is_gathering(std::size_t param) const { return step_->is_gathering(param); }
  // True if its gradients are reduced; then backward must make the next two calls.
  [[nodiscard]] bool reduces() const { return reduces_; }
  // Call it before enqueuing work on compute that writes this gradient, if every micro-step
  // reduces: that work then waits until the slot's previous gradient is reduced.
  void gradient_needed(std::size_t param) { step_->gradient_needed(param); }
  // Call it on compute after the last work that writes this gradient. When a bucket is complete,
  // comm reduces it and update computes its owned units, concurrently with compute.
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
  void end() { step_->weights_->join(); }  // gathers are joined into compute

 private:
  friend class ShardedStep;
  explicit ForwardPass(ShardedStep& step) : step_(&step) {}
  ShardedStep* step_;
};

}  // namespace muo::optim
