#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optim/bucket_tensors.h"
#include "optim/sharding_plan.h"

namespace muo::optim {

// Slots for whole gradients, if every micro-step is reduced. The buckets of a slot use it in turn:
// the backward pass waits until the previous one is reduced.
struct GradientSlots {
  std::vector<std::size_t> of_bucket;  // by bucket index
  std::vector<std::int64_t> bytes;     // by slot: size of its largest bucket
};

// A bucket is reduced while the backward pass fills the next one (double buffering). So there are
// two slots; or, if the larger buckets are far apart, as tables are, two slots of the size of the
// smaller buckets and one of the size of the larger ones. There are more slots only if the
// backward pass fills more buckets at a time, as with buckets by shape. An all-reduced bucket has
// its own slot, because no rank holds less than all of it, and its scalars are written throughout
// the backward pass.
GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params);

// One rank's tensors of GradientSlots, and the tensors shared by the reductions of all buckets,
// which run one after the other on comm.
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
