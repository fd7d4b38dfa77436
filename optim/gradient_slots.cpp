#include "optim/gradient_slots.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace muo {
namespace {

// While backward writes a bucket: from its first complete gradient to its last, by
// ParamSpec::ready.
struct Open {
  std::size_t bucket = 0;
  int first = std::numeric_limits<int>::max();
  int last = std::numeric_limits<int>::min();
};

}  // namespace

GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  GradientSlots slots;
  slots.of_bucket.resize(plan.buckets.size());
  std::vector<Open> taking_turns;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    if (bucket.reduction == Reduction::kAllReduce) {
      slots.of_bucket[b] = slots.elements.size();
      slots.elements.push_back(bucket.full_elements());
      continue;
    }
    Open& open = taking_turns.emplace_back();
    open.bucket = b;
    for (const Unit& unit : bucket.units) {
      open.first = std::min(open.first, params[unit.param].ready);
      open.last = std::max(open.last, params[unit.param].ready);
    }
  }
  std::stable_sort(taking_turns.begin(), taking_turns.end(),
                   [](const Open& a, const Open& b) { return a.first < b.first; });

  const std::size_t own_slots = slots.elements.size();
  std::vector<int> closed;  // when its last bucket was complete
  for (const Open& open : taking_turns) {
    // The slot whose last bucket was complete first has most likely been reduced.
    const auto slot = std::min_element(closed.begin(), closed.end());
    std::size_t chosen = static_cast<std::size_t>(slot - closed.begin());
    if (closed.size() < 2 || *slot >= open.first) {
      chosen = closed.size();
      closed.push_back(0);
      slots.elements.push_back(0);
    }
    closed[chosen] = open.last;
    slots.of_bucket[open.bucket] = own_slots + chosen;
    std::int64_t& elements = slots.elements[own_slots + chosen];
    elements = std::max(elements, plan.buckets[open.bucket].full_elements());
  }
  return slots;
}

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
