#include "optim/gradient_slots.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace muo::optim {
namespace {

std::int64_t gradient_bytes(const Bucket& bucket) {
  return bucket.full_elements() * size_of(bucket.gradient_dtype);
}

// The interval in which a bucket uses a slot, in units of ParamSpec::ready: from its first complete
// gradient to its last one, plus the time for its reduction.
struct Interval {
  std::size_t bucket = 0;
  std::int64_t bytes = 0;
  int first = std::numeric_limits<int>::max();
  int last = std::numeric_limits<int>::min();
  int reduced = 0;

  [[nodiscard]] bool overlaps(const Interval& other) const {
    return first <= other.reduced && other.first <= reduced;
  }
};

// Adds slots, which are assigned to buckets in the given order.
GradientSlots with_turns(GradientSlots slots, const std::vector<Interval>& buckets) {
  const std::size_t others = slots.bytes.size();
  std::vector<std::vector<Interval>> turns;  // by slot
  for (const Interval& open : buckets) {
    const auto fits = std::ranges::find_if(turns, [&](const std::vector<Interval>& taken) {
      return std::ranges::none_of(taken,
                                  [&](const Interval& other) { return open.overlaps(other); });
    });
    const auto chosen = static_cast<std::size_t>(fits - turns.begin());
    if (fits == turns.end()) {
      turns.emplace_back();
      slots.bytes.push_back(0);
    }
    turns[chosen].push_back(open);
    slots.of_bucket[open.bucket] = others + chosen;
    std::int64_t& bytes = slots.bytes[others + chosen];
    bytes = std::max(bytes, open.bytes);
  }
  return slots;
}

std::int64_t sum_of_bytes(const GradientSlots& slots) {
  return std::accumulate(slots.bytes.begin(), slots.bytes.end(), std::int64_t{0});
}

}  // namespace

GradientSlots gradient_slots(const ShardingPlan& plan, std::span<const ParamSpec> params) {
  GradientSlots slots;
  slots.of_bucket.resize(plan.buckets.size());
  std::vector<Interval> taking_turns;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    if (bucket.reduction == Reduction::kAllReduce) {
      slots.of_bucket[b] = slots.bytes.size();
      slots.bytes.push_back(gradient_bytes(bucket));
      continue;
    }
    Interval& open = taking_turns.emplace_back();
    open.bucket = b;
    open.bytes = gradient_bytes(bucket);
    for (const Unit& unit : bucket.units) {
      open.first = std::min(open.first, params[unit.param].ready);
      open.last = std::max(open.last, params[unit.param].ready);
    }
  }
  std::ranges::stable_sort(taking_turns, {}, &Interval::first);
  // A bucket is reduced while the next bucket is written.
  for (std::size_t i = 0; i < taking_turns.size(); ++i) {
    const int next_but_one =
        i + 2 < taking_turns.size() ? taking_turns[i + 2].first : std::numeric_limits<int>::max();
    taking_turns[i].reduced = std::max(taking_turns[i].last, next_but_one - 1);
  }
  GradientSlots by_time = with_turns(slots, taking_turns);
  std::ranges::stable_sort(taking_turns, std::greater<>(), &Interval::bytes);
  GradientSlots by_size = with_turns(std::move(slots), taking_turns);
  return sum_of_bytes(by_size) < sum_of_bytes(by_time) ? by_size : by_time;
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

}  // namespace muo::optim
