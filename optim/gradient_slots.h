#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optim/bucket_tensors.h"
#include "optim/sharding_plan.h"

namespace muo::optim {

// Where whole gradients lie where every micro-step reduces them: the buckets of a slot take turns
// in it. Backward waits until the one before is reduced.
struct GradientSlots {
  std::vector<std::size_t> of_bucket;  // by bucket index
  std::vector<std::int64_t> bytes;     // of each slot: of its largest bucket
};

// A bucket is reduced while backward fills the next (double buffering): two slots, or two of the
// smaller buckets and one of the larger, where these are far apart as tables are; more only where
// backward writes more buckets at a time, as a strategy of buckets by shape makes it. An
// all-reduced bucket has its own: nobody holds less of it, and its scalars are written all the way.
GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params);

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

}  // namespace muo::optim
