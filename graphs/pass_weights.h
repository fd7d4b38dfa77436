#pragma once

#include <span>

#include "model/block.h"
#include "optim/sharded_step.h"

namespace muo::graphs {

// The weights of a forward pass between steps: all are available or, if `gathers` shards them, each
// pass gathers them, on all ranks at the same time.
struct PassWeights {
  std::span<const Tensor> weights;
  optim::ShardedStep* gathers = nullptr;

  // Enqueues a pass by calling run(WeightSource); its gathers have tags from `first` on.
  template <class Run>
  void pass(Tag first, const Run& run) const {
    if (gathers == nullptr) return run(model::WeightSource{.weights = weights});
    optim::ShardedStep::ForwardPass pass = gathers->begin_forward_pass(first);
    run(model::WeightSource{.weights = weights,
                            .before_use = [&](std::size_t param) { pass.weight_needed(param); }});
    pass.end();
  }
};

}  // namespace muo::graphs
