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
// the same calls on every rank, eager or during a capture. The plan and params must outlive it.
//
// begin() opens a step (OpenStep), of which each micro-step is a pass (MicroStep): forward, with
// weight_needed before each use of a weight, then backward, with gradient_ready for every
// parameter. What reads the weights between steps is a ForwardPass.
//
// Shard::kGradients and more, on more than one rank: each micro-step reduces. A rank's part of the
// sum over ranks, which is in rank order, is added up over micro-steps in their order, in fp32.
//
// ReplicaAt::kSharded: weight_needed also before each use in backward, in the model's order
// (gathered_weights.h).
//
// Gather::kPipelined: finish commits, begin publishes what the step before committed. Publishing
// twice changes nothing, so the first step, and one after publish(), do as all others. Why nobody
// reads or writes too early:
// - Publishing overwrites what the last backward read, and sends what the last commit wrote: comm
//   waits for compute in begin, which comes after finish, where compute waited for both.
// - Forward reads what arrives: compute waits for a bucket's gather in weight_needed.
// - Commit overwrites what peers read from this rank while its gather ran: it waits for the totals,
//   which comm enqueued later, and no gather is complete before its inputs may be overwritten.
// - Commit writes to a common replica (ReplicaAt) when the totals are there: all ranks have then
//   done their backward passes. Publishing it is a collective of nothing, in which all wait for
//   all.
// - Between finish and the next begin replicas hold old weights, but for the parts that this rank
//   updates: whoever reads them then must publish() before. Masters and state are new.
class ShardedStep {
 public:
  class OpenStep;
  class MicroStep;
  class ForwardPass;

  // `gradients`: kRun where they must survive between launches of graphs, as they must when the
  // micro-steps of an accumulation are several launches. Throws Error for an invalid plan.
  ShardedStep(const RankContext& rank, const ShardingPlan& plan, std::span<const ParamSpec> params,
              Arena& arena, Lifespan gradients = Lifespan::kStep);
  ~ShardedStep() = default;
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  // The replica that forward reads; logical shape. Sharded: there from weight_needed on.
  [[nodiscard]] Tensor weight(std::size_t param) const;
  [[nodiscard]] bool is_sharded(std::size_t param) const {
    return weights_ && weights_->holds(param);
  }
  [[nodiscard]] bool shards_weights() const { return weights_.has_value(); }
  // Where backward writes (first micro-step, or each that is reduced) and accumulates (others);
  // logical shape. The sum over micro-steps and ranks is the gradient of the mean loss: the loss
  // carries the global scale.
  [[nodiscard]] Tensor gradient(std::size_t param) const;
  [[nodiscard]] Tensor scalars() const { return scalars_; }  // StepScalars
  [[nodiscard]] Tensor hyper() const { return hyper_; }      // HyperParameters
  [[nodiscard]] Tensor statistics() const {
    return statistics_;
  }  // LossStatistics, state like step and updates
  // (kRankIndices + world) fp64: [0] this rank's loss, which the model writes before finish; after
  // it, sums over all ranks (kernels/commit.h).
  [[nodiscard]] Tensor totals() const { return totals_; }
  // (params, 3) fp64, UpdateSquares. After finish: of the step *before*, summed over all ranks; 0
  // if that was not committed. They are part of the totals' collective.
  [[nodiscard]] Tensor update_squares() const { return update_squares_; }

  // On compute: this step's scalars. One is open at a time.
  [[nodiscard]] OpenStep begin();
  // Between steps, where shards_weights(); its gathers have tags from `first` on.
  [[nodiscard]] ForwardPass begin_forward_pass(Tag first);
  // Whether each micro-step's gradients are reduced: backward writes them, and never adds.
  [[nodiscard]] bool reduces_every_micro_step() const { return reduces_every_micro_step_; }

  // Whether finish leaves replicas for the next begin to publish: pipelined, and more than one
  // rank.
  [[nodiscard]] bool leaves_replicas_behind() const { return !gathered_first_.empty(); }

  // What is enqueued from now on reads these clocks. The update's covers everything from a lap of
  // the caller's on compute before begin, to one on compute after finish.
  void observe(const UpdateClock& clock) { clock_ = clock; }

  // Makes every replica equal to the masters, which someone (a checkpoint, or a step that left
  // replicas behind) wrote. Ordered after earlier and before later work on compute.
  void publish();

  // Between steps: update_squares() of the last one. Collective; ordered as publish() is.
  void sum_last_update();

  // Parts of this rank: weights under their names (masters), ".momentum" and ".variance" for Muon,
  // ".adam_m" and ".adam_v" for AdamW.
  [[nodiscard]] std::vector<StateEntry> state() const;

 private:
  // Where a parameter lies.
  struct Location {
    std::size_t bucket = 0;
    const Unit* first = nullptr;
  };
  struct BucketState {
    std::unique_ptr<BucketTensors> tensors;
    std::unique_ptr<BucketUpdate> update;
    ValueIndexBases index_bases;
    std::size_t parameters = 0;
    std::size_t missing = 0;  // gradients of this step, or of this micro-step
    bool open = false;        // backward writes to it, or its reduction is not enqueued yet
    bool gathering = false;   // begin publishes it, and compute has not waited yet
    std::unique_ptr<Event> gathered, ready, reduced, prepared, exchanged, computed, committed;
  };

  // Of this rank: the index of the first value that is not finite (kernels/commit.h).
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
  Tensor all_totals_;  // totals_ and update_squares_, that one collective sums
  Tensor totals_, update_squares_;
  Tensor squares_;  // of parts (kernels/update_squares.h); absent where others count
  std::vector<UpdatePiece> pieces_;
  bool summed_ = false;  // in this step
  UpdateClock clock_;
  std::vector<BucketState> buckets_;
  std::vector<std::size_t> gathered_first_;   // the buckets that begin publishes, in this order
  std::optional<GradientTensors> gradients_;  // if every micro-step is reduced
  std::optional<GatheredWeights> weights_;    // if they are sharded
  std::vector<const BucketState*>
      in_slot_;                    // of each slot: the last bucket since the last join, or null
  std::vector<BucketCall> calls_;  // of a last micro-step
  std::vector<BucketCall> reductions_;  // of any other
  std::size_t next_call_ = 0;
  std::int64_t micro_step_ = 0;
  std::vector<bool> needed_;              // weights of this step
  std::vector<bool> announced_;           // gradients of this step
  std::ptrdiff_t exchanged_bucket_ = -1;  // whose input is on its way, and not computed yet
  std::unique_ptr<Event> begun_, loss_, updated_, totalled_, agreed_, all_committed_, published_,
      joined_;
};

// From begin() to finish(), which may be in several graphs. Of the ShardedStep, which must outlive
// it.
class ShardedStep::OpenStep {
 public:
  // Number `index` of the plan's, from 0 on: the one before is through.
  [[nodiscard]] MicroStep micro_step(std::int64_t index);
  // What was reduced so far is done before later work on compute: where a graph ends.
  void join() { step_->join(); }
  // Joins all streams into compute: totals agreed, commit or nothing. Later work on compute sees
  // the new weights, of which the next begin publishes those that leaves_replicas_behind() is
  // about. `before_counting` (metrics) runs between the agreement and step's increment. Throws
  // Error if a gradient was not ready.
  void finish(const std::function<void(Stream&)>& before_counting = {}) {
    step_->finish(before_counting);
  }

 private:
  friend class ShardedStep;
  explicit OpenStep(ShardedStep& step) : step_(&step) {}
  ShardedStep* step_;
};

// Calls that come too early or twice throw Error.
class ShardedStep::MicroStep {
 public:
  // Before work on compute that reads this weight is enqueued: what is enqueued later sees it.
  void weight_needed(std::size_t param) { step_->weight_needed(param); }
  // Whether that may make compute wait. It does once per bucket that is gathered in begin, and once
  // per gather of sharded weights.
  [[nodiscard]] bool is_gathering(std::size_t param) const { return step_->is_gathering(param); }
  // Whether its gradients are reduced, and the next two calls belong into its backward.
  [[nodiscard]] bool reduces() const { return reduces_; }
  // Before work on compute that writes this gradient is enqueued, where every micro-step reduces:
  // what is enqueued later finds no other bucket's gradient there that is yet to be reduced.
  void gradient_needed(std::size_t param) { step_->gradient_needed(param); }
  // On compute, after the last work that writes this gradient: when a bucket is complete, comm
  // reduces it and update computes its owned units, while compute goes on.
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
