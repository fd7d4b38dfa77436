#include "optim/gathered_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace muo::optim {

GatheredWeights::GatheredWeights(const RankContext& rank, const ShardingPlan& plan,
                                 std::span<const ParamSpec> params, Arena& arena)
    : rank_(rank),
      plan_(plan),
      params_(params),
      schedule_(make_weight_schedule(plan, params)),
      group_of_(params.size()),
      arriving_(schedule_.groups.size(), false),
      entered_(rank.device.make_event()),
      joined_(rank.device.make_event()) {
  for (std::size_t i = 0; i < schedule_.slots.size(); ++i)
    slots_.push_back(arena.tensor({.name = concat("gathered weights.", i),
                                   .shape = {schedule_.slots[i]},
                                   .dtype = DType::kBytes,
                                   .category = MemoryCategory::kWeights}));
  std::int64_t converted = 0;
  for (std::size_t g = 0; g < schedule_.groups.size(); ++g) {
    gathered_.push_back(rank.device.make_event());
    for (const WeightGroup::Part& part : schedule_.groups[g].parts) {
      const Bucket& bucket = plan.buckets[part.bucket];
      if (bucket.weight_wire != bucket.replica_dtype)
        converted = std::max(converted, part.block.size());
      for (const Unit& unit : bucket.units)
        if (part.block.begin <= unit.offset && unit.offset < part.block.end)
          group_of_[unit.param] = g;
    }
  }
  if (converted > 0)
    wire_ = arena.tensor({.name = "weight_wire",
                          .shape = {converted},
                          .dtype = DType::kBF16,
                          .category = MemoryCategory::kStaging});
}

Tensor GatheredWeights::memory_of(const WeightGroup& group, const WeightGroup::Part& part) const {
  return {.data = slots_[group.slot].data + part.offset,
          .shape = {part.block.size()},
          .dtype = plan_.buckets[part.bucket].replica_dtype,
          .device = rank_.rank};
}

Tensor GatheredWeights::weight(std::size_t param) const {
  const WeightGroup& group = schedule_.groups[group_of_[param]];
  const Shape& shape = params_[param].shape;
  for (const WeightGroup::Part& part : group.parts)
    for (const Unit& unit : plan_.buckets[part.bucket].units)
      if (unit.param == param && intersection(part.block, unit_range(unit)).size() > 0)
        return memory_of(group, part)
            .elements(unit.offset - unit.begin - part.block.begin, shape.numel())
            .view(shape);
  MUO_FAIL("there are no gathered weights of ", params_[param].name);
}

void GatheredWeights::begin(WeightPass pass, Tag first_tag) {
  pass_ = pass;
  visit_ = 0;
  next_tag_ = first_tag;
  arriving_.assign(arriving_.size(), false);
}

Tag GatheredWeights::tags(WeightPass pass) const {
  return static_cast<Tag>(schedule_.collectives(visits(pass)));
}

bool GatheredWeights::may_wait(std::size_t param) const {
  const bool entering = visit_ == 0 || visits(pass_)[visit_ - 1].stage != schedule_.stage_of[param];
  return entering || arriving_[group_of_[param]];
}

void GatheredWeights::needed(std::size_t param) {
  const auto& all = visits(pass_);
  const int stage = schedule_.stage_of[param];
  while (visit_ == 0 || all[visit_ - 1].stage != stage) {
    MUO_CHECK(visit_ < all.size(), params_[param].name, " is read after its stage");
    enter(all[visit_++]);
  }
  const std::size_t group = group_of_[param];
  if (arriving_[group]) rank_.compute.wait(*gathered_[group]);
  arriving_[group] = false;
}

void GatheredWeights::enter(const WeightSchedule::Visit& visit) {
  if (visit.gathers.empty()) return;
  rank_.compute.record(*entered_);
  rank_.comm.wait(*entered_);
  for (const std::size_t g : visit.gathers) {
    const WeightGroup& group = schedule_.groups[g];
    for (const WeightGroup::Part& part : group.parts)
      buckets_[part.bucket]->gather(rank_.comm, next_tag_++, part.block, memory_of(group, part),
                                    wire_);
    rank_.comm.record(*gathered_[g]);
    arriving_[g] = true;
  }
}

void GatheredWeights::join() {
  rank_.comm.record(*joined_);
  rank_.compute.wait(*joined_);
}

}  // namespace muo::optim
