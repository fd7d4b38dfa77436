#include "optim/gradient_tensors.h"

#include <algorithm>

namespace muo {

GradientTensors::GradientTensors(const ShardingPlan& plan, std::span<const ParamSpec> params,
                                 int rank, Arena& arena)
    : slots_(gradient_slots(plan, params)) {
  for (std::size_t i = 0; i < slots_.elements.size(); ++i)
    tensors_.push_back(arena.tensor({.name = concat("gradients.", i),
                                     .shape = {slots_.elements[i]},
                                     .category = MemoryCategory::kGradients}));
  std::int64_t wire = 0;
  std::int64_t addend = 0;
  for (const Bucket& bucket : plan.buckets) {
    const std::int64_t full = bucket.full_elements();
    if (bucket.gradient_wire != DType::kF32) wire = std::max(wire, full);
    addend = std::max(addend, bucket.reduction == Reduction::kAllReduce
                                  ? full
                                  : bucket.segments[static_cast<std::size_t>(rank)]);
  }
  const auto staging = [&](const char* name, std::int64_t n, DType dtype) {
    return arena.tensor(
        {.name = name, .shape = {n}, .dtype = dtype, .category = MemoryCategory::kStaging});
  };
  if (wire > 0) wire_ = staging("gradient_wire", wire, DType::kBF16);
  addend_ = staging("gradient_addend", addend, DType::kF32);
}

GradientMemory GradientTensors::of(std::size_t bucket, Lifespan sums) const {
  return {.sums = sums, .whole = tensors_[slot(bucket)], .wire = wire_, .addend = addend_};
}

}  // namespace muo
