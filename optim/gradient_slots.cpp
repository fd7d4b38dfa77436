#include "optim/gradient_slots.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace muo {
namespace {

// While a slot is a bucket's, by ParamSpec::ready: from its first complete gradient to its last,
// and until its reduction has had time.
struct Open {
  std::size_t bucket = 0;
  int first = std::numeric_limits<int>::max();
  int last = std::numeric_limits<int>::min();
  int reduced = 0;
};

std::int64_t gradient_bytes(const Bucket& bucket) {
  return bucket.full_elements() * size_of(bucket.gradient_dtype);
}

}  // namespace

GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  GradientSlots slots;
  slots.of_bucket.resize(plan.buckets.size());
  std::vector<Open> taking_turns;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    if (bucket.reduction == Reduction::kAllReduce) {
      slots.of_bucket[b] = slots.bytes.size();
      slots.bytes.push_back(gradient_bytes(bucket));
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

  // Whoever comes after a bucket is written while that is reduced.
  for (Open& open : taking_turns) {
    const auto next = std::ranges::find_if(
        taking_turns, [&](const Open& other) { return other.first > open.last; });
    open.reduced = next == taking_turns.end() ? open.last : next->last;
  }
  std::ranges::stable_sort(taking_turns, std::greater<>(), [&](const Open& open) {
    return gradient_bytes(plan.buckets[open.bucket]);
  });
  std::vector<std::vector<Open>> takers;
  for (const Open& open : taking_turns) {
    const auto slot = std::ranges::find_if(takers, [&](const std::vector<Open>& others) {
      return std::ranges::none_of(others, [&](const Open& other) {
        return open.first <= other.reduced && other.first <= open.reduced;
      });
    });
    slots.of_bucket[open.bucket] =
        slots.bytes.size() - takers.size() + static_cast<std::size_t>(slot - takers.begin());
    if (slot != takers.end()) {
      slot->push_back(open);
      continue;
    }
    takers.push_back({open});
    slots.bytes.push_back(gradient_bytes(plan.buckets[open.bucket]));
  }
  return slots;
}

GradientTensors::GradientTensors(const ShardingPlan& plan, std::span<const ParamSpec> params,
                                 int rank, Arena& arena)
    : slots_(gradient_slots(plan, params)) {
  for (std::size_t i = 0; i < slots_.bytes.size(); ++i)
    tensors_.push_back(arena.tensor({.name = concat("gradients.", i),
                                     .shape = {slots_.bytes[i]},
                                     .dtype = DType::kBytes,
                                     .category = MemoryCategory::kGradients}));
  std::int64_t wire = 0;
  std::int64_t addend = 0;
  for (const Bucket& bucket : plan.buckets) {
    const std::int64_t full = bucket.full_elements();
    if (bucket.gradient_wire != bucket.gradient_dtype) wire = std::max(wire, full);
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
