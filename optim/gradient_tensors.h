#pragma once

#include <cstddef>
#include <vector>

#include "optim/bucket_run.h"
#include "optim/gradient_slots.h"

namespace muo {

// One rank's tensors of GradientSlots, and those that the reductions of all buckets share, as they
// follow each other on comm.
class GradientTensors {
 public:
  GradientTensors(const ShardingPlan& plan, std::span<const ParamSpec> params, int rank,
                  Arena& arena);
  [[nodiscard]] std::size_t slots() const { return tensors_.size(); }
  [[nodiscard]] std::size_t slot(std::size_t bucket) const { return slots_.of_bucket[bucket]; }
  [[nodiscard]] GradientMemory of(std::size_t bucket, Lifespan sums) const;

 private:
  GradientSlots slots_;
  std::vector<Tensor> tensors_;
  Tensor wire_, addend_;
};

}  // namespace muo
