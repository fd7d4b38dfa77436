#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "optim/sharding_plan.h"
#include "runtime/arena.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"

namespace muo {

// Runs any ShardingPlan on one rank: owns the tensors of weights, gradients, masters and optimizer
// state (all from the arena), and enqueues reduction, update, commit and publication. It enqueues
// the same calls on every rank, eager or during a capture. The plan and params must outlive it.
//
// Within one step, in this order:
//   begin, then backward with gradient_ready for every parameter exactly once (in the last
//   micro-step), then finish.
class ShardedStep {
 public:
  // `gradients`: kRun where they must survive between launches of graphs, as they must when the
  // micro-steps of an accumulation are several launches. Throws Error for an invalid plan.
  ShardedStep(const RankContext& rank, const ShardingPlan& plan, std::span<const ParamSpec> params,
              Arena& arena, Lifespan gradients = Lifespan::kStep);
  ~ShardedStep();
  ShardedStep(const ShardedStep&) = delete;
  ShardedStep& operator=(const ShardedStep&) = delete;

  // The replica that forward reads; logical shape.
  [[nodiscard]] Tensor weight(std::size_t param) const;
  // Where backward writes (first micro-step) and accumulates (others); logical shape. The sum over
  // micro-steps and ranks is the gradient of the mean loss: the loss carries the global scale.
  [[nodiscard]] Tensor gradient(std::size_t param) const;
  [[nodiscard]] Tensor scalars() const;  // StepScalars
  [[nodiscard]] Tensor hyper() const;    // HyperParameters
  [[nodiscard]] Tensor totals() const;   // (2) fp64: [0] this rank's loss, which the model writes
                                         // before finish; after it, sums over all ranks: loss and
                                         // squared gradients

  // On compute: this step's scalars. Before the step's first use of any gradient.
  void begin();
  // On compute, after the last work that writes this gradient: when a bucket is complete, comm
  // reduces it and update computes its owned units, while compute goes on.
  void gradient_ready(std::size_t param);
  // Joins all streams into compute: totals agreed, commit or nothing, weights published. On return
  // later work on compute sees the new weights. `before_counting` (metrics) runs between the
  // agreement and step's increment.
  void finish(const std::function<void(Stream&)>& before_counting = {});

  // Makes every replica equal to the masters, which someone (a checkpoint) wrote. Ordered after
  // earlier and before later work on compute.
  void publish();

  // Parts of this rank: weights under their names (masters), ".momentum" and ".variance" for Muon,
  // ".adam_m" and ".adam_v" for AdamW.
  [[nodiscard]] std::vector<StateEntry> state() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
