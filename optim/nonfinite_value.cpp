#include "optim/nonfinite_value.h"

#include "base/check.h"

namespace muo::optim {
namespace {

std::int64_t elements_before(const ShardingPlan& plan, std::size_t bucket) {
  std::int64_t sum = 0;
  for (std::size_t b = 0; b < bucket; ++b)
    sum += plan.buckets[b].full_elements();
  return sum;
}

// Returns the index in the full space for an index into the rank's part of the reduced gradient.
std::int64_t full_index(const Bucket& bucket, int world, int rank, std::int64_t held) {
  if (world == 1 || bucket.reduction == Reduction::kAllReduce) return held;
  for (const Range block : blocks(bucket)) {
    const Range own = segment_of_block(bucket, block, rank);
    if (held < own.size()) return own.begin + held;
    held -= own.size();
  }
  MUO_FAIL("no rank holds this index in bucket ", bucket.name);
}

}  // namespace

ValueIndexBases value_index_bases(const ShardingPlan& plan, std::size_t bucket) {
  const std::int64_t before = elements_before(plan, bucket);
  return {.gradients = before, .updates = elements_before(plan, plan.buckets.size()) + before};
}

NonfiniteValue locate_value(const ShardingPlan& plan, int rank, std::int64_t index) {
  NonfiniteValue out;
  const std::int64_t gradients = elements_before(plan, plan.buckets.size());
  out.update = index >= gradients;
  if (out.update) index -= gradients;
  std::size_t b = 0;
  for (; b + 1 < plan.buckets.size() && index >= plan.buckets[b].full_elements(); ++b)
    index -= plan.buckets[b].full_elements();
  const Bucket& bucket = plan.buckets.at(b);
  if (!out.update) index = full_index(bucket, plan.world, rank, index);
  for (const Unit& unit : bucket.units) {
    if (unit.offset > index) break;
    out.param = unit.param;
    out.element = unit.begin + index - unit.offset;
  }
  return out;
}

std::string describe_value(const NonfiniteValue& value, std::span<const ParamSpec> params) {
  const ParamSpec& param = params[value.param];
  if (value.update) return "the update of " + param.name;
  std::string index;
  std::int64_t rest = value.element;
  for (std::size_t d = param.shape.rank(); d-- > 0;) {
    index = concat(rest % param.shape[d], index.empty() ? "" : ", ", index);
    rest /= param.shape[d];
  }
  return concat("the gradient of ", param.name, "[", index, "]");
}

}  // namespace muo::optim
