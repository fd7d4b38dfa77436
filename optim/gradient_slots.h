#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optim/bucket_tensors.h"
#include "optim/sharding_plan.h"

namespace muo::optim {

// Slots for whole gradients, if every micro-step is reduced: buckets of a slot use it in turn.
// Backward waits until the previous one is reduced.
struct GradientSlots {
  std::vector<std::size_t> of_bucket;  // by bucket index
  std::vector<std::int64_t> bytes;     // by slot: size of its largest bucket
};

// A bucket is reduced while backward fills the next (double buffering). So there are two slots, or
// two of the smaller buckets and one of the larger, if those are far apart, as tables are; more
// only if backward fills more buckets at a time, as with buckets by shape. An all-reduced bucket
// has its own slot: no rank holds less of it, and its scalars are written throughout backward.
GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params);

// One rank's tensors of GradientSlots, and those shared by the reductions of all buckets, which run
// one after another on comm.
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

}  // namespace muo::optim
